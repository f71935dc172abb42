// This process's connections to other hosts, which are TensorFlow's, below gRPC.
#ifndef TF_TPU_EXT_CC_PODS_CONNECTIONS_H_
#define TF_TPU_EXT_CC_PODS_CONNECTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

// Ends this process's connections to "name:port", and returns how many there were. What waits for
// an answer on them then gets an error: TensorFlow waits without a limit for a host that has
// stopped without closing its connections.
int CutConnections(const std::string& address);

// Asks a gRPC server at "name:port" for a sign of life, on a connection of its own.
// DeadlineExceeded if it lets this wait for longer, Unavailable if nobody listens there, NotFound
// if there is no such name, Aborted if the server closes the connection.
absl::Status CheckAlive(const std::string& address, absl::Duration timeout);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_CONNECTIONS_H_
