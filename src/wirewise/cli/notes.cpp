#include "wirewise/cli/notes.h"

#include <iostream>

#include "wirewise/base/text.h"

namespace wirewise {

void print_notes(const Reading& reading, const std::string& file) {
  for (const Note& note : reading.notes) {
    std::string place = file == "-" ? "standard input" : printable(file);
    if (note.line > 0) place += ":" + std::to_string(note.line);
    if (note.line > 0 && note.column > 0) place += ":" + std::to_string(note.column);
    std::cerr << place << ": note: " << printable(note.text) << (note.remedy.empty() ? "" : " ") << printable(note.remedy) << "\n";
  }
}

}  // namespace wirewise
