#include "sim/lower/flows/port_streams.h"

#include <doctest/doctest.h>

#include <vector>

using namespace trainyard;
using namespace trainyard::lower;

namespace {

engine::Op op(engine::OpKind kind, std::uint8_t stream, std::uint32_t port) {
  engine::Op made;
  made.kind = kind;
  made.stream = stream;
  made.port = port;
  return made;
}

}  // namespace

TEST_CASE("a port is used on as many streams as any role's blocks say, each counted once") {
  constexpr plan::ConnectionId first{0}, second{1}, unused{2};
  std::vector<plan::Role> roles(2);
  roles[0].program.blocks = {{{op(engine::OpKind::collective, 1, plan::port_of(first)),
                               op(engine::OpKind::collective, 1, plan::port_of(first)),
                               op(engine::OpKind::compute, 0, plan::port_of(second))}},
                             {{op(engine::OpKind::collective, 4, plan::port_of(first)),
                               op(engine::OpKind::send, 2, plan::send_port(second)),
                               op(engine::OpKind::receive, 3, plan::receive_port(second))}}};
  roles[1].program.blocks = {{{op(engine::OpKind::collective, 5, plan::port_of(first))}}};
  const PortStreams streams(roles);
  CHECK(streams.collective(first) == 3);
  CHECK(streams.collective(second) == 0);
  CHECK(streams.sending(second) == 1);
  CHECK(streams.sending(first) == 0);
  CHECK(streams.collective(unused) == 0);
  CHECK(streams.sending(unused) == 0);
}
