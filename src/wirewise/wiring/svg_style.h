// How a picture of a wiring looks: its style sheet in light and dark, what stands in it as text, and how wide lines are.
#pragma once

#include <string>
#include <string_view>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// The style sheet, with a class for each kind of device and link.
extern const std::string_view kSvgStyle;
[[nodiscard]] std::string_view style_of(DeviceKind kind);

/// Text of a file as XML takes it, without what a terminal or a browser would act on.
[[nodiscard]] std::string escaped(const std::string& text);
/// As much of it as fits into a width in pixels; letters are about 6.2 wide.
[[nodiscard]] std::string fitting(const std::string& text, double width);
[[nodiscard]] std::string named_rack(const std::string& rack);
[[nodiscard]] std::string rate(BytesPerSecond beta);

/// Of a line, in pixels, for a kind of link by its name. Uplinks of whole racks would hide what is behind them: the network's lines grow less.
[[nodiscard]] double width_of(std::string_view kind, BytesPerSecond beta);

}  // namespace wirewise
