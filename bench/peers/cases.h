/* What contestants share: reading cases from the command line, and how often to call. C and C++. */
#ifndef WIREWISE_BENCH_CASES_H
#define WIREWISE_BENCH_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kOperations };
static const char* const kNames[kOperations] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"};

static inline double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "all_reduce:8": the operation's number, or -1; its bytes in *bytes. */
static inline int read_case(const char* text, size_t* bytes) {
  const char* const colon = strchr(text, ':');
  int op = 0;
  if (colon == NULL) return -1;
  *bytes = (size_t)strtoull(colon + 1, NULL, 10);
  for (op = 0; op < kOperations; ++op) {
    if (strlen(kNames[op]) == (size_t)(colon - text) && strncmp(kNames[op], text, (size_t)(colon - text)) == 0) return op;
  }
  return -1;
}

/* float32 elements of one rank's part: of the whole for all_reduce and broadcast. At least one. */
static inline size_t part_of(int op, size_t bytes, int ranks) {
  const size_t parts = op == kAllReduce || op == kBroadcast ? 1 : (size_t)ranks;
  const size_t count = bytes / 4 / parts;
  return count > 0 ? count : 1;
}

/* Calls before anything is timed, and calls that the first guess is taken from. */
static inline int warmup_calls(size_t bytes) { return bytes >= ((size_t)16 << 20) ? 1 : 5; }
static inline int guess_calls(size_t bytes) { return bytes >= ((size_t)16 << 20) ? 1 : 3; }
/* As many calls as fill `budget` seconds at `guess` seconds each (the slowest rank's), within limits. */
static inline int timed_calls(double guess, double budget) {
  const double calls = guess > 0 ? budget / guess : 20000;
  return calls < 3 ? 3 : calls > 20000 ? 20000 : (int)calls;
}

#endif
