#include "cc/pods/endpoints.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/log/log.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/pods/connections.h"

namespace tf_tpu_ext {

Endpoints::Endpoints(std::function<absl::Duration()> limit) : limit_(std::move(limit)) {}

Endpoints::~Endpoints() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  if (watch_.joinable()) watch_.join();
}

void Endpoints::Note(const std::string& task, const std::string& address) {
  absl::MutexLock lock(&mutex_);
  addresses_[task] = address;
  if (!watch_.joinable()) watch_ = std::thread([this] { Watch(); });
}

std::shared_ptr<const Endpoints::Lost> Endpoints::Listen(Lost lost) {
  auto listener = std::make_shared<const Lost>(std::move(lost));
  absl::MutexLock lock(&mutex_);
  listening_.erase(std::remove_if(listening_.begin(), listening_.end(),
                                  [](const auto& weak) { return weak.expired(); }),
                   listening_.end());
  listening_.push_back(listener);
  return listener;
}

void Endpoints::Watch() {
  std::set<std::string> silent;
  while (true) {
    std::map<std::string, std::string> addresses;
    {
      absl::MutexLock lock(&mutex_);
      // Asks when half of the limit has passed, and waits for an answer during the other half.
      const absl::Duration pause = silent.empty() ? limit_() / 2 : absl::ZeroDuration();
      if (mutex_.AwaitWithTimeout(absl::Condition(&ending_), pause)) return;
      addresses = addresses_;
    }
    for (const auto& [task, address] : addresses) {
      // Calls that still try to connect to a silent host need not wait as long again.
      const absl::Duration patience = limit_() / (silent.count(task) > 0 ? 8 : 2);
      const absl::Status health = CheckAlive(address, patience);
      if (absl::IsDeadlineExceeded(health)) {
        silent.insert(task);
      } else {
        silent.erase(task);
      }
      // Connections to a host that has ended stay open if its machine has not reported that.
      if (absl::IsDeadlineExceeded(health) || absl::IsUnavailable(health)) {
        Cut(task, address, health);
      }
    }
  }
}

void Endpoints::Cut(const std::string& task, const std::string& address, const absl::Status& why) {
  std::vector<std::weak_ptr<const Lost>> listening;
  {
    absl::MutexLock lock(&mutex_);
    listening = listening_;
  }
  const absl::Status lost = absl::UnavailableError(absl::StrCat(
      task, " at ", address, " has given no sign of life for ", absl::FormatDuration(limit_()),
      ": ", why.message(),
      ". When it is back, connect to the workers again and restore a checkpoint. "
      "tf_tpu_ext.configure(host_limit_seconds=...), or TF_TPU_EXT_HOST_LIMIT_SECONDS, sets "
      "for a worker how long it waits."));
  for (const std::weak_ptr<const Lost>& weak : listening) {
    if (const auto listener = weak.lock()) (*listener)(task, lost);
  }
  if (CutConnections(address) > 0) LOG_FIRST_N(WARNING, 100) << lost.message();
}

}  // namespace tf_tpu_ext
