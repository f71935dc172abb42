// Memory that another process fills with elements, and that tensors here refer to.
//
// A slot is an unnamed file, so nothing is left of it when the last process that has it open is
// gone. The other process writes an element into a free slot and sends the slot's number through a
// socket. Here, large tensors stay where they were written; when the last of them is gone, the
// slot's number goes back through the socket, and the slot is free.
#ifndef TF_TPU_EXT_CC_DATA_ELEMENT_SLOTS_H_
#define TF_TPU_EXT_CC_DATA_ELEMENT_SLOTS_H_

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// A file descriptor that is closed with its object.
class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(int descriptor) : descriptor_(descriptor) {}
  OwnedFile(OwnedFile&& other) noexcept : descriptor_(other.Release()) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile();

  int get() const { return descriptor_; }
  int Release();

 private:
  int descriptor_ = -1;
};

// The slots of one iteration in one process. Thread-safe: tensors may be released at any time.
class ElementSlots : public std::enable_shared_from_this<ElementSlots> {
 public:
  // How many elements can be prepared ahead of the program.
  static constexpr int kSlots = 8;
  // How many slots tensors may keep: the others go on circulating, however many elements the
  // program holds.
  static constexpr int kMostKept = kSlots / 2;
  // Smaller tensors are copied, so that they don't keep a slot.
  static constexpr size_t kLeastKeptBytes = 32 << 10;

  ~ElementSlots();

  // Creates the files. The numbers of free slots are sent to `socket`.
  static absl::StatusOr<std::shared_ptr<ElementSlots>> Create(OwnedFile socket);

  int socket() const { return socket_.get(); }
  bool IsOwner() const { return getpid() == owner_; }
  std::array<int, kSlots> files();

  // The tensors of the element in a slot's first `size` bytes.
  absl::StatusOr<std::vector<tensorflow::Tensor>> TakeElement(int64_t slot, int64_t size);

  // The text that was written there.
  absl::StatusOr<std::string> TakeText(int64_t slot, int64_t size);

 private:
  class Use;
  class Buffer;
  struct Slot {
    OwnedFile file;
    char* memory = nullptr;
    size_t mapped = 0;
    bool in_use = false;
    // A tensor here refers to it.
    bool kept = false;
  };

  explicit ElementSlots(OwnedFile socket) : socket_(std::move(socket)) {}

  // The slot stays in use until all copies of the result are gone.
  absl::StatusOr<std::shared_ptr<Use>> Take(int64_t slot, int64_t size);
  // Maps at least `size` bytes of a slot's file.
  absl::Status Map(size_t size, Slot* slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks a slot in use as kept by tensors; returns false if too many slots are kept.
  bool Keep(int slot);
  void GiveBack(int slot);

  const OwnedFile socket_;
  // A fork has a copy of all this, but only the process that reads gives slots back.
  const pid_t owner_ = getpid();
  absl::Mutex mutex_;
  std::array<Slot, kSlots> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_ELEMENT_SLOTS_H_
