// Texts as people pass them on: quoted in mails, copied out of issue trackers and shells, prefixed by launchers and log collectors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace wirewise {

/// A text that Windows shells wrote as UTF-16, in UTF-8; any other as it is.
[[nodiscard]] std::string utf8_of(std::string_view text);

/// HTML's entities as what they stand for, in a text that has them for < or >.
void read_entities(std::string& text);

/// The text without what stands round the output that it shows: prose before and behind fences (```), the fences, commands with their prompts,
/// marks of quoting (">", a diff's "+"), the bars of Markdown tables, a time or a label that (nearly) every line begins with, HTML's entities.
/// All of it becomes blanks, so that lines and columns stay what they were (but for those behind an entity). Equal to `text` where there is none.
[[nodiscard]] std::string unpasted(std::string_view text);

/// What launchers and log collectors begin a line with, behind a time or without one: "node1: ", "[1,0]<stdout>:", "[worker-0] ".
struct LineLabel {
  std::size_t begin = 0, end = 0;  // of it, blanks before it included
  std::string name;                // "node1"; of MPI's the rank, "0"
};
[[nodiscard]] std::optional<LineLabel> line_label(std::string_view line);

/// Whether a line is a shell's prompt, with or without a command behind it.
[[nodiscard]] bool is_command(std::string_view line);
/// Whether a line is a fence of Markdown, "```".
[[nodiscard]] bool is_fence(std::string_view line);

/// Whether a line says that others were left out: "...", "[…]".
[[nodiscard]] bool is_gap(std::string_view line);

}  // namespace wirewise
