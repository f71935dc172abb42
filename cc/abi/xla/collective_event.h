// What a collective of xla::Communicator returns: a Future from 2.21 on, the AsyncValueRef of an
// empty value in 2.20.
#ifndef TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_
#define TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
#include "xla/future.h"
#else
#include "xla/tsl/concurrency/async_value_ref.h"
#include "xla/tsl/concurrency/chain.h"
#endif

namespace tf_tpu_ext {

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
  // To be called once.
  CollectiveEvent TakeEvent() { return std::move(*event_); }
  void Set(absl::Status status) const { promise_->Set(std::move(status)); }

 private:
  std::shared_ptr<xla::Promise<>> promise_;
  std::shared_ptr<CollectiveEvent> event_;
};

#else

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
  CollectiveEvent TakeEvent() { return event_.CopyRef(); }
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

#endif

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_COLLECTIVE_EVENT_H_
