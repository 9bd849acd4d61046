// The field table of profile files, for the reader, the schema and the explanation of a scenario.
#pragma once

#include "sim/cost/profile.h"
#include "sim/json/fields.h"

namespace trainyard::cost {

void visit_fields(json::Fields& f, Profile& profile);

void visit_fields(json::Fields& f, Provenance& from);
void visit_fields(json::Fields& f, SizeRange& range);
void visit_fields(json::Fields& f, GemmResidual& row);
void visit_fields(json::Fields& f, GemmWaves& waves);
void visit_fields(json::Fields& f, GemmLaw& law);
void visit_fields(json::Fields& f, AttentionLaw& law);
void visit_fields(json::Fields& f, ConvolutionResidual& row);
void visit_fields(json::Fields& f, ConvolutionLaw& law);
void visit_fields(json::Fields& f, MemoryLaw& law);
void visit_fields(json::Fields& f, CollectiveLaw& law);
void visit_fields(json::Fields& f, CollectiveStart& law);
void visit_fields(json::Fields& f, PointToPointLaw& law);
void visit_fields(json::Fields& f, HostCopyLaw& law);
void visit_fields(json::Fields& f, OverlapLaw& law);
void visit_fields(json::Fields& f, HeldOutError& error);
void visit_fields(json::Fields& f, Calibration& calibration);

}  // namespace trainyard::cost
