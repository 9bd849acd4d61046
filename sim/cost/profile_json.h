// The field table of profile files, for the reader, the schema and the explanation of a scenario.
#pragma once

#include "sim/cost/profile.h"
#include "sim/json/fields.h"

namespace trainyard::cost {

// What a machine may have, with decades to spare, so that a step of it can be simulated; beyond, it
// is a slip of a unit.
inline constexpr json::Bounds kStart = json::between(0, 1);      // s, of a kernel or a message
inline constexpr json::Bounds kRate = json::between(1e3, 1e18);  // B/s
inline constexpr json::Bounds kShare = json::between(1e-4, 1);   // of a datasheet's number

void visit_fields(json::Fields& f, Profile& profile);

void visit_fields(json::Fields& f, Provenance& from);
void visit_fields(json::Fields& f, SizeRange& range);
void visit_fields(json::Fields& f, GemmResidual& row);
void visit_fields(json::Fields& f, GemmTiles& tiles);
void visit_fields(json::Fields& f, GemmUnaligned& unaligned);
void visit_fields(json::Fields& f, GemmLaw& law);
void visit_fields(json::Fields& f, AttentionLaw& law);
void visit_fields(json::Fields& f, ConvolutionResidual& row);
void visit_fields(json::Fields& f, ConvolutionLaw& law);
void visit_fields(json::Fields& f, MemoryLaw& law);
void visit_fields(json::Fields& f, CollectiveLaw& law);
void visit_fields(json::Fields& f, CollectiveStart& law);
void visit_fields(json::Fields& f, PointToPointLaw& law);
void visit_fields(json::Fields& f, HostCopyLaw& law);
void visit_fields(json::Fields& f, GroupedGemmLaw& law);
void visit_fields(json::Fields& f, AttentionDropoutLaw& law);
void visit_fields(json::Fields& f, OverlapLaw& law);
void visit_fields(json::Fields& f, HeldOutError& error);
void visit_fields(json::Fields& f, Calibration& calibration);

}  // namespace trainyard::cost
