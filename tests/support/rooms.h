// Tests speak of all rooms by their plain words: a test includes this instead of naming the
// namespace of each thing that it looks into.
#pragma once

namespace trainyard {

namespace collective {}
namespace cost {}
namespace engine {}
namespace fit {}
namespace imports {}
namespace lower {}
namespace models {}
namespace plan {}
namespace recipe {}
namespace report {}
namespace scenario {}
namespace schedule {}
namespace search {}
namespace simulate {}
namespace topologies {}

using namespace collective;
using namespace cost;
using namespace engine;
using namespace fit;
using namespace imports;
using namespace lower;
using namespace models;
using namespace plan;
using namespace recipe;
using namespace report;
using namespace scenario;
using namespace schedule;
using namespace search;
using namespace simulate;
using namespace topologies;

}  // namespace trainyard
