// TensorFlow 2.19 and 2.20 do not export the functions that print numbers to logs, though absl's
// headers declare them as if they were exported. Checks in TensorFlow's inline functions need them;
// for which types depends on the compiler's inlining.
#include "absl/log/internal/log_message.h"

#include "absl/base/config.h"
#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 21

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace log_internal {

// NOLINTBEGIN(google-runtime-int): as absl declares them.
template LogMessage& LogMessage::operator<<(const char& v);
template LogMessage& LogMessage::operator<<(const signed char& v);
template LogMessage& LogMessage::operator<<(const unsigned char& v);
template LogMessage& LogMessage::operator<<(const short& v);
template LogMessage& LogMessage::operator<<(const unsigned short& v);
template LogMessage& LogMessage::operator<<(const int& v);
template LogMessage& LogMessage::operator<<(const unsigned int& v);
template LogMessage& LogMessage::operator<<(const long& v);
template LogMessage& LogMessage::operator<<(const unsigned long& v);
template LogMessage& LogMessage::operator<<(const long long& v);
template LogMessage& LogMessage::operator<<(const unsigned long long& v);
template LogMessage& LogMessage::operator<<(const float& v);
template LogMessage& LogMessage::operator<<(const double& v);
template LogMessage& LogMessage::operator<<(const bool& v);
// NOLINTEND(google-runtime-int)

}  // namespace log_internal
ABSL_NAMESPACE_END
}  // namespace absl

#endif
