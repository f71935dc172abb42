// What a collective of xla::Communicator takes and returns: a Future from 2.21 on; the
// AsyncValueRef of an empty value in 2.20; a status in 2.19, so that it has to wait for the others.
#ifndef TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_
#define TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "cc/abi/xla/minor.h"
#include "xla/core/collectives/communicator.h"
#include "xla/stream_executor/device_address.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
#include "xla/future.h"
#elif TF_TPU_EXT_TENSORFLOW_MINOR == 20
#include "xla/tsl/concurrency/async_value_ref.h"
#include "xla/tsl/concurrency/chain.h"
#endif

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
using Communicator = xla::Communicator;
using CollectiveBuffers = absl::InlinedVector<stream_executor::DeviceAddressBase, 4>;

inline CollectiveBuffers BuffersOf(absl::Span<const stream_executor::DeviceAddressBase> buffers) {
  return {buffers.begin(), buffers.end()};
}
#else
class Communicator : public xla::Communicator {
 public:
  virtual absl::StatusOr<size_t> CurrentRank() = 0;
};
using CollectiveBuffers = absl::Span<const stream_executor::DeviceAddressBase>;

inline CollectiveBuffers BuffersOf(absl::Span<const stream_executor::DeviceAddressBase> buffers) {
  return buffers;
}
#endif

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21

using CollectiveEvent = xla::Future<>;

inline CollectiveEvent FailedEvent(absl::Status status) {
  return CollectiveEvent(std::move(status));
}

inline bool IsReady(CollectiveEvent& event) { return event.IsReady(); }
inline absl::Status Await(CollectiveEvent& event) { return event.Await(); }

// The side that ends the event, once. Copies are the same promise.
class CollectivePromise {
 public:
  CollectivePromise() {
    auto [promise, future] = xla::MakePromise<>();
    promise_ = std::make_shared<xla::Promise<>>(std::move(promise));
    event_ = std::make_shared<CollectiveEvent>(std::move(future));
  }
  // Must be called only once.
  CollectiveEvent TakeEvent() const { return std::move(*event_); }
  void Set(absl::Status status) const { promise_->Set(std::move(status)); }

 private:
  std::shared_ptr<xla::Promise<>> promise_;
  std::shared_ptr<CollectiveEvent> event_;
};

#elif TF_TPU_EXT_TENSORFLOW_MINOR == 20

using CollectiveEvent = tsl::AsyncValueRef<tsl::Chain>;

inline CollectiveEvent FailedEvent(absl::Status status) {
  return tsl::MakeErrorAsyncValueRef(std::move(status));
}

inline bool IsReady(CollectiveEvent& event) { return event.IsAvailable(); }
inline absl::Status Await(CollectiveEvent& event) {
  tsl::BlockUntilReady(event.GetAsyncValue());
  return event.IsError() ? event.GetError() : absl::OkStatus();
}

// The side that ends the event, once. Copies are the same promise.
class CollectivePromise {
 public:
  CollectivePromise() : event_(tsl::MakeConstructedAsyncValueRef<tsl::Chain>()) {}
  CollectiveEvent TakeEvent() const { return event_.CopyRef(); }
  void Set(absl::Status status) const {
    if (status.ok()) {
      event_.SetStateConcrete();
    } else {
      event_.SetError(std::move(status));
    }
  }

 private:
  CollectiveEvent event_;
};

#else

using CollectiveEvent = absl::Status;

inline CollectiveEvent FailedEvent(absl::Status status) { return status; }

inline bool IsReady(const CollectiveEvent&) { return true; }
inline absl::Status Await(const CollectiveEvent& event) { return event; }

// The side that ends the event, once. Copies are the same promise.
class CollectivePromise {
 public:
  // Waits for Set.
  CollectiveEvent TakeEvent() const {
    result_->is_set.WaitForNotification();
    return result_->status;
  }
  void Set(absl::Status status) const {
    result_->status = std::move(status);
    result_->is_set.Notify();
  }

 private:
  struct Result {
    absl::Status status;
    absl::Notification is_set;
  };
  std::shared_ptr<Result> result_ = std::make_shared<Result>();
};

#endif

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_
