// Memory in pages of 2 MB, where the system has them: it otherwise makes each of 4 KB apart.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>

namespace trainyard {

// Asks for large pages for as much of what the container, a vector or a string, has reserved as
// they fit into. What is not written takes no memory but the rest of the last page. Requires:
// nothing was written yet.
template <class Container>
void use_large_pages(Container& reserved) {
  constexpr std::size_t kLarge = std::size_t{1} << 21;
  void* inner = reserved.data();
  std::size_t room = reserved.capacity() * sizeof(*reserved.data());
  if (std::align(kLarge, kLarge, inner, room) != nullptr)
    ::madvise(inner, room / kLarge * kLarge, MADV_HUGEPAGE);
}

}  // namespace trainyard
