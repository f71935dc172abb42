// The wheel's own header, with the conditions of StatusOr's constructors as structs instead of
// aliases. GCC 12 gives the types behind these aliases all the same hash, and compares each with
// those of every other StatusOr: up to half of the time that a file with XLA's headers takes.
// Neither meaning nor binary interface change.
#ifndef TF_TPU_EXT_CC_ABI_ABSL_STATUS_INTERNAL_STATUSOR_INTERNAL_H_
#define TF_TPU_EXT_CC_ABI_ABSL_STATUS_INTERNAL_STATUSOR_INTERNAL_H_

#include "absl/base/config.h"

// TensorFlow 2.19's has other conditions, without names.
#if ABSL_LTS_RELEASE_VERSION < 20250127
#include_next "absl/status/internal/statusor_internal.h"
#else

#define IsConstructionValid ConstructionValid
#define IsAssignmentValid AssignmentValid
#define IsConstructionFromStatusValid ConstructionFromStatusValid
#define IsConstructionFromStatusOrValid ConstructionFromStatusOrValid
#define IsStatusOrAssignmentValid StatusOrAssignmentValid
#include_next "absl/status/internal/statusor_internal.h"
#undef IsConstructionValid
#undef IsAssignmentValid
#undef IsConstructionFromStatusValid
#undef IsConstructionFromStatusOrValid
#undef IsStatusOrAssignmentValid

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace internal_statusor {

template <bool kExplicit, typename T, typename U, bool kLifetimebound>
struct IsConstructionValid : ConstructionValid<kExplicit, T, U, kLifetimebound> {};

template <typename T, typename U, bool kLifetimebound>
struct IsAssignmentValid : AssignmentValid<T, U, kLifetimebound> {};

template <bool kExplicit, typename T, typename U>
struct IsConstructionFromStatusValid : ConstructionFromStatusValid<kExplicit, T, U> {};

template <bool kExplicit, typename T, typename U, bool kLifetimebound, typename Reference>
struct IsConstructionFromStatusOrValid
    : ConstructionFromStatusOrValid<kExplicit, T, U, kLifetimebound, Reference> {};

template <typename T, typename U, bool kLifetimebound>
struct IsStatusOrAssignmentValid : StatusOrAssignmentValid<T, U, kLifetimebound> {};

}  // namespace internal_statusor
ABSL_NAMESPACE_END
}  // namespace absl

#endif

#endif  // TF_TPU_EXT_CC_ABI_ABSL_STATUS_INTERNAL_STATUSOR_INTERNAL_H_
