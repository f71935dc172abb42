// Says on a stream what lasts long, so that nobody takes it for a hang.
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
  // Null for none.
  std::ostream* out = nullptr;
  // Whether a bar may be drawn there, which is drawn again and again in one line.
  bool is_terminal = false;
  // What takes no longer is not worth a word.
  absl::Duration patience = absl::Seconds(2);

  // Standard error; none if TF_CPP_MIN_LOG_LEVEL silences TensorFlow's own information.
  static NoticeStream StandardError();
};

// What a SlowNotice watches.
struct Ongoing {
  std::string doing;
  std::string what;
  absl::Time start;
};

// All that is watched now, whether it was worth a word yet or not, in the order of the starts.
std::vector<Ongoing> AllOngoing();

// Watches what happens in its lifetime. If that lasts longer than the patience, it writes "`doing`
// `what` ...", on a terminal a bar with the time so far, and at the end how long it has taken.
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
