// Finding the files of a data path, and a run's data from its configuration.
#include "wirewise/train/data.h"

#include <fmt/format.h>
#include <glob.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/token_formats.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormats = "Give a text file, a folder of them, .bin tokens, or random.";

/// All regular files below `folder` (of the folder alone when not recursive) that aren't hidden, in byte order of their paths.
std::vector<fs::path> files_in(const fs::path& folder, bool recursive) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator item(folder, error);
  for (const fs::recursive_directory_iterator end; !error && item != end; item.increment(error)) {
    std::error_code unreadable;
    const bool hidden = item->path().filename().string().starts_with('.');
    if (item->is_directory(unreadable)) {
      if (hidden || !recursive) item.disable_recursion_pending();
    } else if (!hidden && item->is_regular_file(unreadable)) {
      found.push_back(item->path());
    }
  }
  if (error) {
    throw bad_input(fmt::format("folder {} can't be read: {}.", printable(folder.string()), error.message()), "Check its permissions.");
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  return found;
}

std::vector<fs::path> match(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  return paths;
}

bool is_token_file(const fs::path& path) { return path.extension() == ".bin" || path.extension() == ".idx"; }

void add_file(tokens::MappedTokens& out, const fs::path& path, DataFormat format) {
  switch (format) {
    case DataFormat::kLlmc: return tokens::add_llmc(out, path);
    case DataFormat::kNanoGpt: return tokens::add_nanogpt(out, path);
    case DataFormat::kMegatron: return tokens::add_megatron(out, path);
    case DataFormat::kText: return tokens::add_text(out, path);
    case DataFormat::kAuto:
    case DataFormat::kRandom: break;
  }
}

/// Shards given by a folder or a pattern: all in one format, Megatron's .bin and .idx counting once.
std::unique_ptr<TokenSource> open_shards(std::vector<fs::path> paths, const std::string& given, DataFormat format) {
  const std::set<fs::path> all(paths.begin(), paths.end());
  std::vector<fs::path> shards;
  for (auto& path : paths) {
    if (path.extension() != ".idx" || !all.contains(fs::path(path).replace_extension(".bin"))) shards.push_back(std::move(path));
  }
  if (format == DataFormat::kAuto) format = tokens::detect(shards.front());
  tokens::MappedTokens out;
  for (const auto& shard : shards) {
    std::error_code error;
    if (fs::is_directory(shard, error)) {
      throw bad_input(fmt::format("{} matches the folder {}.", printable(given), printable(shard.string())), "Match files only.");
    }
    add_file(out, shard, format);
  }
  return tokens::make_mapped_source(std::move(out), format);
}

std::unique_ptr<TokenSource> open_text_folder(const fs::path& folder, const std::vector<fs::path>& files) {
  tokens::MappedTokens out;
  for (const auto& path : files) {
    MappedFile file(path);
    if (!tokens::holds_text(file)) continue;
    out.runs.push_back({out.files.size(), 0, file.bytes().size(), tokens::Element::kUInt8});
    out.files.push_back(std::move(file));
  }
  if (out.files.empty()) throw bad_input(fmt::format("folder {} holds no text.", printable(folder.string())), kFormats);
  return tokens::make_mapped_source(std::move(out), DataFormat::kText);
}

std::unique_ptr<TokenSource> open_folder(const fs::path& folder, DataFormat format) {
  if (format == DataFormat::kText) return open_text_folder(folder, files_in(folder, true));
  auto files = files_in(folder, false);
  const bool only_tokens = !files.empty() && std::all_of(files.begin(), files.end(), is_token_file);
  if (format == DataFormat::kAuto && !only_tokens) return open_text_folder(folder, files_in(folder, true));
  std::erase_if(files, [](const fs::path& path) { return path.extension() != ".bin"; });
  if (files.empty()) throw bad_input(fmt::format("folder {} holds no .bin files.", printable(folder.string())), kFormats);
  return open_shards(std::move(files), folder.string(), format);
}

Sampler sampler_over(const std::shared_ptr<const TokenSource>& source, std::uint64_t begin, std::uint64_t end, const TrainConfig& config) {
  return Sampler(source, begin, end, config.sequence, config.model.vocab, config.seed, true);
}

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path, DataFormat format, std::int64_t vocab, std::uint64_t seed) {
  // Of any format: who asks for random tokens means those, whatever a configuration says of files.
  if (format == DataFormat::kRandom || path == "random") return tokens::make_random_source(vocab, seed);
  if (path.empty()) throw bad_input("no data is given.", "Set data.path (or --data) to a file or a folder, or to random.");
  std::error_code error;
  const auto kind = fs::status(path, error).type();
  if (kind == fs::file_type::directory) return open_folder(path, format);
  if (kind == fs::file_type::not_found) {
    if (path.find_first_of("*?[") != std::string::npos) {
      auto matched = match(path);
      if (matched.empty()) throw bad_input(fmt::format("no file matches data.path {}.", printable(path)), kFormats);
      return open_shards(std::move(matched), path, format);
    }
    const bool stem = fs::exists(path + ".idx", error) && (format == DataFormat::kMegatron || format == DataFormat::kAuto);
    if (!stem) throw bad_input(fmt::format("data.path {} does not exist.", printable(path)), kFormats);
    format = DataFormat::kMegatron;
  }
  if (format == DataFormat::kAuto) format = tokens::detect(path);
  tokens::MappedTokens out;
  add_file(out, path, format);
  return tokens::make_mapped_source(std::move(out), format);
}

void check_tokens(const TokenSource& source, std::int64_t vocab) {
  constexpr std::uint64_t kWindow = 1U << 16, kWindows = 256;
  const std::uint64_t size = source.size();
  const std::uint64_t windows = std::min((size + kWindow - 1) / kWindow, kWindows);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(size, kWindow)));
  std::int32_t largest = -1;
  std::uint64_t place = 0;
  for (std::uint64_t i = 0; i < windows; ++i) {
    const std::uint64_t position = i + 1 == windows ? size - tokens.size() : size / windows * i;
    source.read(position, tokens.data(), tokens.size());
    const auto found = std::max_element(tokens.begin(), tokens.end());
    if (*found <= largest) continue;
    largest = *found;
    place = position + static_cast<std::uint64_t>(found - tokens.begin());
  }
  if (largest < vocab) return;
  throw bad_input(fmt::format("token {} in {} is not below model.vocab {}.", largest, source.where(place), vocab),
                  fmt::format("Set model.vocab to at least {}, or data.format to what the file is.", largest + std::int64_t{1}));
}

std::string fingerprint(const TokenSource& source) {
  constexpr std::uint64_t kProbes = 64, kProbe = 64;
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  const std::uint64_t size = source.size();
  XXH3_128bits_update(state, &size, sizeof size);
  std::int32_t window[kProbe] = {};
  const std::uint64_t width = std::min(size, kProbe);
  for (std::uint64_t i = 0; i < kProbes; ++i) {
    // Spread from the first window to the last; size / kProbes first, so that nothing overflows.
    const std::uint64_t position = i + 1 == kProbes ? size - width : (size - width) / (kProbes - 1) * i;
    source.read(position, window, width);
    XXH3_128bits_update(state, window, width * sizeof window[0]);
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

DataSet open_data(const TrainConfig& config) {
  std::shared_ptr<const TokenSource> source = open_tokens(config.data_path, config.data_format, config.model.vocab, config.seed);
  const std::uint64_t size = source->size();
  std::uint64_t held_out = 0;
  std::optional<Sampler> validation;
  if (!config.validation_path.empty()) {
    std::shared_ptr<const TokenSource> other =
        open_tokens(config.validation_path, config.data_format, config.model.vocab, config.seed + 1);
    validation = sampler_over(other, 0, other->size(), config);
  } else if (config.validation_fraction > 0) {
    const auto sample = static_cast<std::uint64_t>(config.sequence) + 1;
    held_out = std::max(static_cast<std::uint64_t>(config.validation_fraction * static_cast<double>(size)), sample);
    if (size < 2 * sample) {
      throw bad_input(fmt::format("{} holds {} tokens, too few for a sample of {} to train on and one for validation.",
                                  printable(config.data_path), size, sample),
                      "Set data.validation = 0, train.sequence lower, or give more data.");
    }
    held_out = std::min(held_out, size - sample);
    validation = sampler_over(source, size - held_out, size, config);
  }
  Sampler train = sampler_over(source, 0, size - held_out, config);
  std::string print = fingerprint(*source);
  return {std::move(source), std::move(train), std::move(validation), std::move(print)};
}

std::uint64_t stream_hash(const TokenBatch& batch) {
  return XXH3_64bits(batch.sample_ids.data(), batch.sample_ids.size() * sizeof batch.sample_ids[0]);
}

std::string equal_streams(std::span<const std::uint64_t> hashes) {
  std::map<std::uint64_t, std::vector<std::string>> ranks;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) ranks[hashes[rank]].push_back(std::to_string(rank));
  std::string out;
  for (const auto& [hash, equal] : ranks) {
    if (equal.size() > 1) out += fmt::format("{}data ranks {} read the same samples", out.empty() ? "" : "; ", join(equal, ", "));
  }
  return out.empty() ? out : out + ": their work is done more than once. Check how ranks are numbered.";
}

}  // namespace wirewise
