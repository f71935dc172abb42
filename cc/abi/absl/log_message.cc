// TensorFlow 2.19 exports no printing of a `long` to its logs, though absl's headers declare that
// it does. Checks in its inline functions need it.
#include "absl/log/internal/log_message.h"

#include "absl/base/config.h"
#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace log_internal {

template LogMessage& LogMessage::operator<<(const long& v);  // NOLINT(google-runtime-int)

}  // namespace log_internal
ABSL_NAMESPACE_END
}  // namespace absl

#endif
