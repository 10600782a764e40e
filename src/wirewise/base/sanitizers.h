// Which sanitizers this is built with: g++ has a macro for each, clang is asked.
#pragma once

#if defined(__has_feature)
#define WIREWISE_HAS_FEATURE(name) __has_feature(name)
#else
#define WIREWISE_HAS_FEATURE(name) 0
#endif

namespace wirewise {

#if defined(__SANITIZE_ADDRESS__) || WIREWISE_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || WIREWISE_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace wirewise

#undef WIREWISE_HAS_FEATURE
