// A save: every rank writes its file beside a list of what it holds, all agree, rank 0 joins the lists into the index, marks the folder
// complete and renames it. Whatever fails, the folder under the final name is either the old one or the whole new one.
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/text.h"
#include "wirewise/train/checkpoint_files.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise::checkpoint {
namespace {

namespace fs = std::filesystem;

Error misuse(const std::string& sentence) { return Error(ErrorKind::kFailed, "checkpoint: " + sentence); }

/// What a rank's file will hold, in file order: wide elements first, as safetensors itself orders them, so that all are aligned.
std::vector<const Fragment*> file_order(const std::vector<Fragment>& fragments) {
  std::vector<const Fragment*> order;
  std::map<std::string_view, const Fragment*> first;
  for (const auto& fragment : fragments) {
    const auto numel = numel_of(fragment.shape, fragment.dtype);
    if (!numel || fragment.offset > *numel || fragment.length > *numel - fragment.offset) {
      throw misuse(fmt::format("elements {} + {} lie outside {} of shape {}.", fragment.offset, fragment.length, printable(fragment.tensor),
                               shape_text(fragment.shape)));
    }
    if (fragment.length > 0 && fragment.data == nullptr) throw misuse(fmt::format("no data for {}.", printable(fragment.tensor)));
    const Fragment& other = *first.emplace(fragment.tensor, &fragment).first->second;
    if (other.shape != fragment.shape || other.dtype != fragment.dtype) {
      throw misuse(fmt::format("{} is passed with shapes {} and {}.", printable(fragment.tensor), shape_text(other.shape),
                               shape_text(fragment.shape)));
    }
    if (fragment.length > 0) order.push_back(&fragment);
  }
  std::stable_sort(order.begin(), order.end(), [](const Fragment* a, const Fragment* b) { return size_of(a->dtype) > size_of(b->dtype); });
  return order;
}

/// The safetensors header, its 8-byte length first, padded with spaces so that the data starts on 8 bytes.
std::string safetensors_header(const std::vector<const Fragment*>& order, std::uint64_t step, int rank) {
  nlohmann::ordered_json root;
  nlohmann::ordered_json metadata = {{"format", "wirewise"}, {"step", std::to_string(step)}, {"rank", std::to_string(rank)}};
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  std::set<std::string> keys{"__metadata__"};
  std::uint64_t position = 0;
  for (const Fragment* fragment : order) {
    const bool is_whole = fragment->length == numel_of(fragment->shape, fragment->dtype);
    const std::uint64_t end = fragment->offset + fragment->length;
    const std::string key = is_whole ? fragment->tensor : fmt::format("{}[{}:{}]", fragment->tensor, fragment->offset, end);
    if (!keys.insert(key).second) throw misuse(fmt::format("{} is passed twice.", printable(key)));
    const std::uint64_t bytes = fragment->length * size_of(fragment->dtype);
    const auto shape = is_whole ? fragment->shape : std::vector<std::int64_t>{static_cast<std::int64_t>(fragment->length)};
    tensors[key] = {{"dtype", safetensors_dtype(fragment->dtype)}, {"shape", shape}, {"data_offsets", {position, position + bytes}}};
    if (!is_whole) {
      metadata[key] = nlohmann::ordered_json({{"tensor", fragment->tensor}, {"shape", fragment->shape}, {"offset", fragment->offset}}).dump();
    }
    position += bytes;
  }
  root["__metadata__"] = metadata;
  root.update(tensors);
  std::string json;
  try {
    json = root.dump();
  } catch (const nlohmann::json::exception&) {
    throw misuse("a tensor's name is no valid UTF-8.");
  }
  json.resize(round_up(json.size(), 8), ' ');
  if (json.size() > kMostHeader) throw misuse(fmt::format("the names of {} fragments are too long for one file.", order.size()));
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

/// Writes rank-N.safetensors, a chunk at a time, and rank-N.json, which lists it.
void write_rank(FileOperations& files, const fs::path& folder, std::uint64_t step, int rank, const std::vector<Fragment>& fragments) {
  const auto order = file_order(fragments);
  const std::string header = safetensors_header(order, step, rank);
  Index list;
  list.step = step;
  list.files.push_back({tensors_name(rank), 0, checksum(header.data(), header.size())});
  Output out(files, folder / tensors_name(rank));
  out.write(header.data(), header.size());
  std::uint64_t position = header.size();
  for (const Fragment* fragment : order) {
    Entry entry{fragment->tensor, fragment->shape, fragment->dtype, fragment->offset, fragment->length, 0, position, {}};
    const auto* data = static_cast<const unsigned char*>(fragment->data);
    const std::uint64_t bytes = fragment->length * size_of(fragment->dtype);
    for (std::uint64_t done = 0; done < bytes; done += kChunk) {
      const auto size = static_cast<std::size_t>(std::min(kChunk, bytes - done));
      entry.checksums.push_back(checksum(data + done, size));
      out.write(data + done, size);
    }
    position += bytes;
    list.entries.push_back(std::move(entry));
  }
  out.finish();
  list.files[0].bytes = position;
  for (const auto& fragment : fragments) {  // so that tensors without elements are known too
    if (fragment.length == 0) list.entries.push_back({fragment.tensor, fragment.shape, fragment.dtype, 0, 0, 0, position, {}});
  }
  write_file(files, folder / list_name(rank), write_index(list));
}

/// Joins the ranks' lists into the index and writes it with the marker that makes the folder complete.
void write_whole(FileOperations& files, const fs::path& folder, std::uint64_t step, int ranks, const TrainState& state) {
  Index index;
  index.step = step;
  index.state = state;
  std::set<std::string> without_elements;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path path = folder / list_name(rank);
    Index list = read_index(read_file(path, kMostIndex), path.string());
    if (list.files.size() != 1 || list.step != step) throw misuse(fmt::format("{} is of another save.", path.string()));
    for (auto& entry : list.entries) {
      entry.file = static_cast<std::size_t>(rank);
      // One entry stands for a tensor's absence of elements; those of ranks that merely hold none of it say nothing.
      const bool says_nothing = entry.length == 0 && (numel_of(entry.shape, entry.dtype) != 0 || !without_elements.insert(entry.tensor).second);
      if (!says_nothing) index.entries.push_back(std::move(entry));
    }
    index.files.push_back(list.files[0]);
  }
  check_index(index, "checkpoint to be written");
  const std::string text = write_index(index);
  write_file(files, folder / kIndexName, text);
  for (int rank = 0; rank < ranks; ++rank) fs::remove(folder / list_name(rank));
  write_file(files, folder / kMarkerName, marker_text(text));
  files.sync_folder(folder);
}

std::string unique_suffix() {
  std::random_device random;
  return fmt::format("{}-{:08x}", ::getpid(), random());
}

/// Deletes a folder of ours whose contents are no longer wanted: its own files only, and the folder if nothing else is in it. Failures
/// are logged; the next save tries again.
void remove_own(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error) || !fs::is_directory(folder, error)) return;
  std::vector<fs::path> own;
  for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error)) {
    if (is_own_file(item->path().filename().string())) own.push_back(item->path());
  }
  for (const auto& path : own) fs::remove(path, error);
  if (!fs::remove(folder, error) || error) log_warn(fmt::format("{} could not be removed: {}", folder.string(), error.message()));
}

/// Folders that saves left behind when they were killed. Only while the folder's lock is held, so none is in use.
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error)) {
    if (is_temporary(item->path().filename().string())) leftovers.push_back(item->path());
  }
  for (const auto& path : leftovers) remove_own(path);
}

bool holds_only_own(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error) || !fs::is_directory(folder, error)) return false;
  for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error)) {
    if (!is_own_file(item->path().filename().string())) return false;
  }
  return !error;
}

/// Removes all but the `keep` newest complete checkpoints, and never `written`. A folder that holds anything not ours stays.
void prune(const fs::path& folder, const fs::path& written, int keep) {
  if (keep <= 0) return;
  auto complete = complete_checkpoints(folder);
  std::size_t others = 0;
  for (auto item = complete.rbegin(); item != complete.rend(); ++item) {
    if (*item == written) continue;
    if (++others < static_cast<std::size_t>(keep) || item == complete.rbegin() || !holds_only_own(*item)) continue;
    // Hidden first, so that a half-removed checkpoint never stands under a final name.
    const fs::path hidden = folder / fmt::format(".{}{}{}", item->filename().string(), kTemporaryInfix, unique_suffix());
    std::error_code error;
    fs::rename(*item, hidden, error);
    if (error) {
      log_warn(fmt::format("{} could not be removed: {}", item->string(), error.message()));
    } else {
      remove_own(hidden);
    }
  }
}

/// Puts `temporary` under its final name and syncs the parent; undone when the sync fails. What stood there before is at `temporary` after.
void publish(FileOperations& files, const fs::path& folder, const fs::path& temporary, const fs::path& final_path) {
  std::error_code error;
  const bool replaces = fs::exists(fs::symlink_status(final_path, error));
  if (replaces && !holds_only_own(final_path)) {
    throw misuse(fmt::format("{} exists and holds files that are no checkpoint's. Move it away.", printable(final_path.string())));
  }
  const fs::path aside = temporary.string() + "-old";
  if (!replaces) {
    files.rename(temporary, final_path);
  } else if (!files.exchange(temporary, final_path)) {
    files.rename(final_path, aside);
    try {
      files.rename(temporary, final_path);
    } catch (...) {
      fs::rename(aside, final_path, error);
      throw;
    }
    fs::rename(aside, temporary, error);
  }
  try {
    files.sync_folder(folder);
  } catch (...) {
    FileOperations plain;
    if (!replaces) {
      fs::rename(final_path, temporary, error);
    } else if (!plain.exchange(temporary, final_path)) {
      fs::rename(final_path, aside, error);
      fs::rename(temporary, final_path, error);
      fs::rename(aside, temporary, error);
    }
    throw;
  }
}

/// Creates `folder` with its parents, each on disk before this returns.
void make_parents(FileOperations& files, const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  make_parents(files, folder.parent_path());
  files.make_folder(folder);
  files.sync_folder(folder.has_parent_path() ? folder.parent_path() : fs::path("."));
}

/// The folder that rank 0 made for this save. Looked for a while, since a network file system may show it late.
fs::path find_temporary(const fs::path& folder, std::uint64_t step) {
  const std::string prefix = fmt::format(".{}{}", folder_name(step), kTemporaryInfix);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error)) {
      if (item->path().filename().string().starts_with(prefix)) found.push_back(item->path());
    }
    if (found.size() == 1) return found.front();
    if (std::chrono::steady_clock::now() > deadline) {
      throw misuse(fmt::format("{} holds {} folders {}*, not one. Do all ranks see the same file system?", printable(folder.string()),
                               found.size(), prefix));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Runs one rank's part of a phase, then agrees: throws on every rank when any failed.
template <class Part>
void phase(const AgreeFunction& agree, Part&& part) {
  std::string failure;
  try {
    part();
  } catch (const std::exception& caught) {
    failure = caught.what();
  }
  agree(failure);
  if (!failure.empty()) throw Error(ErrorKind::kFailed, failure);
}

}  // namespace

std::filesystem::path save(FileOperations& files, const fs::path& folder, std::uint64_t step, int rank, int ranks,
                           const std::vector<Fragment>& fragments, const TrainState& state, int keep, const AgreeFunction& agree) {
  const fs::path final_path = folder / folder_name(step);
  fs::path temporary;
  std::optional<FolderLock> lock;
  try {
    phase(agree, [&] {
      if (ranks < 1 || rank < 0 || rank >= ranks) throw misuse(fmt::format("there is no rank {} of {}.", rank, ranks));
      if (rank != 0) return;
      make_parents(files, folder);
      lock.emplace(folder);
      if (lock->held()) remove_leftovers(folder);
      temporary = folder / fmt::format(".{}{}{}", folder_name(step), kTemporaryInfix, unique_suffix());
      files.make_folder(temporary);
    });
    phase(agree, [&] {
      const fs::path place = rank == 0 ? temporary : find_temporary(folder, step);
      write_rank(files, place, step, rank, fragments);
    });
    phase(agree, [&] {
      if (rank != 0) return;
      write_whole(files, temporary, step, ranks, state);
      publish(files, folder, temporary, final_path);
    });
  } catch (...) {
    if (!temporary.empty()) remove_own(temporary);
    throw;
  }
  if (rank == 0) {
    remove_own(temporary);  // what stood under the final name before, if anything
    prune(folder, final_path, keep);
  }
  return final_path;
}

}  // namespace wirewise::checkpoint

namespace wirewise {

std::filesystem::path save_checkpoint(const std::filesystem::path& folder, std::uint64_t step, int rank, int ranks,
                                      const std::vector<Fragment>& fragments, const TrainState& state, int keep,
                                      const AgreeFunction& agree) {
  checkpoint::FileOperations files;
  return checkpoint::save(files, folder, step, rank, ranks, fragments, state, keep, agree);
}

}  // namespace wirewise
