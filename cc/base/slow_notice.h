// Reports what takes long on a stream, so that nobody mistakes it for a hang.
#ifndef TF_TPU_EXT_CC_BASE_SLOW_NOTICE_H_
#define TF_TPU_EXT_CC_BASE_SLOW_NOTICE_H_

#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

// Where and when slow notices are written.
struct NoticeStream {
  // Null to write nothing.
  std::ostream* out = nullptr;
  // Whether a bar may be drawn there, which is redrawn in place.
  bool is_terminal = false;
  // What takes no longer than this is not reported.
  absl::Duration patience = absl::Seconds(2);

  // Standard error; none if TF_CPP_MIN_LOG_LEVEL silences TensorFlow's own INFO messages.
  static NoticeStream StandardError();
};

// What a SlowNotice watches.
struct Ongoing {
  std::string doing;
  std::string what;
  absl::Time start;
};

// Everything that is being watched, whether reported yet or not, in the order in which it started.
std::vector<Ongoing> AllOngoing();

// Watches what happens during its lifetime. If that takes longer than the patience, it writes
// "`doing` `what` ..." (on a terminal, a bar with the time so far) and, at the end, how long it
// took.
class SlowNotice {
 public:
  SlowNotice(std::string doing, std::string what, const NoticeStream& stream);
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  void Watch();
  void DrawUntilEnded();
  void Write(const std::string& text);

  const Ongoing watched_;
  const NoticeStream stream_;
  absl::Notification ended_;
  std::thread thread_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_SLOW_NOTICE_H_
