// TensorFlow 2.19 and 2.20 export no printing of a `long` to their logs, though absl's headers
// declare that they do. Checks in TensorFlow's inline functions need it.
#include "absl/log/internal/log_message.h"

#include "absl/base/config.h"
#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 21

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace log_internal {

template LogMessage& LogMessage::operator<<(const long& v);  // NOLINT(google-runtime-int)

}  // namespace log_internal
ABSL_NAMESPACE_END
}  // namespace absl

#endif
