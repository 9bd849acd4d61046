// Text that stands on a page.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

std::string for_html(std::string_view text);  // escaped, control bytes too

}  // namespace trainyard
