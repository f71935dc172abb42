// This process's connections to other hosts: TensorFlow's connections, below gRPC.
#ifndef TF_TPU_EXT_CC_PODS_CONNECTIONS_H_
#define TF_TPU_EXT_CC_PODS_CONNECTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

// Ends this process's connections to "name:port", and returns how many there were. Callers waiting
// for an answer on them then get an error: TensorFlow waits indefinitely for a host that has
// stopped without closing its connections.
int CutConnections(const std::string& address);

// Asks a gRPC server at "name:port" for a sign of life, over a separate connection. Returns
// DeadlineExceeded if there is no answer within `timeout`, Unavailable if nothing listens there,
// NotFound if there is no such name, and Aborted if the server closes the connection.
absl::Status CheckAlive(const std::string& address, absl::Duration timeout);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_CONNECTIONS_H_
