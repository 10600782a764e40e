// The checker's parts. Each throws kFailed with the op that breaks a rule; check() calls them all.
#pragma once

#include <string>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// Ids name ops and buffers that exist, and `after` names earlier ops only: with lanes in program order that leaves no room for a
/// cycle.
void check_references(const Program& program);

/// Buffers: allocated once and freed once a life, used only while live and filled, nothing lost, nothing leaked, and every
/// conflicting pair of uses ordered by lanes and `after`. Allocations wait for the compute before them, so the memory walk bounds
/// what lanes do.
void check_buffers(const Program& program);

/// The step as a whole: each segment goes forward and backward once a micro-batch, token count before, report behind all, and
/// ranks that step slices of whole parameters gather them.
void check_step(const Program& program, const Schedule& schedule);

/// Collectives of one program: positive sizes that agree with their buffers.
void check_sizes(const Program& program, const Schedule& schedule);

/// Between programs: every rank runs one; programs that share a group enter the same collectives in the same order with equal
/// sizes; no cycle runs through several programs.
void check_collectives(const Schedule& schedule);

/// Aliased buffers: no rank writes its shard of one while a peer, at whatever speed, may read it, in this step or the one beside it.
void check_aliases(const Schedule& schedule);

/// "op 17 (backward, unit 3 segment 0, micro-batch 1)": errors name ops without a model.
[[nodiscard]] std::string op_text(const Program& program, OpId id);

/// Throws kFailed.
[[noreturn]] void refuse(const Program& program, OpId id, const std::string& what);

}  // namespace wirewise
