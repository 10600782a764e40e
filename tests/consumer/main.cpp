// Uses one symbol of several layers, so that an installed library that lacks headers, objects or dependencies does not link.
#include <iostream>

#include "wirewise/base/sha256.h"
#include "wirewise/base/units.h"
#include "wirewise/model/model.h"
#include "wirewise/strategy/strategy.h"

int main() {
  wirewise::Strategy strategy;
  wirewise::resolve(strategy, 2);
  const auto model = wirewise::build_model(wirewise::preset("gpt2"), {}, strategy.dp_shard);
  std::cout << "gpt2 parameters " << model.parameters() << " hash " << wirewise::Sha256().hex().substr(0, 8) << " "
            << wirewise::format_bytes(wirewise::parse_size("2G")) << "\n";
}
