#include "cc/data/element_slots.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/data/element_layout.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = other.Release();
  }
  return *this;
}

OwnedFile::~OwnedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int OwnedFile::Release() { return std::exchange(descriptor_, -1); }

// An element that has not been given back.
class ElementSlots::Use {
 public:
  Use(std::shared_ptr<ElementSlots> slots, int slot, absl::string_view memory)
      : memory(memory), slots_(std::move(slots)), slot_(slot) {}
  Use(const Use&) = delete;
  ~Use() { slots_->GiveBack(slot_); }

  bool Keep() { return slots_->Keep(slot_); }

  const absl::string_view memory;

 private:
  const std::shared_ptr<ElementSlots> slots_;
  const int slot_;
};

// The buffer of a tensor that refers to a slot.
class ElementSlots::Buffer : public tensorflow::TensorBuffer {
 public:
  // This process may write to the memory until it gives the slot back.
  Buffer(std::shared_ptr<Use> use, absl::string_view bytes)
      : TensorBuffer(const_cast<char*>(bytes.data())), use_(std::move(use)), size_(bytes.size()) {}

  size_t size() const override { return size_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    proto->set_requested_bytes(static_cast<int64_t>(size_));
    proto->set_allocator_name("tf_tpu_ext::ElementSlots");
  }

 private:
  const std::shared_ptr<Use> use_;
  const size_t size_;
};

absl::StatusOr<std::shared_ptr<ElementSlots>> ElementSlots::Create(OwnedFile socket) {
  std::shared_ptr<ElementSlots> slots(new ElementSlots(std::move(socket)));
  absl::MutexLock lock(&slots->mutex_);
  for (Slot& slot : slots->slots_) {
    slot.file = OwnedFile(memfd_create("tf_tpu_ext_element", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // Access to mapped memory beyond the end of its file would kill this process.
    if (slot.file.get() < 0 || fcntl(slot.file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      return absl::ErrnoToStatus(errno, "Memory for a pipeline's elements can't be shared");
    }
  }
  return slots;
}

ElementSlots::~ElementSlots() {
  for (const Slot& slot : slots_) {
    if (slot.memory != nullptr) munmap(slot.memory, slot.mapped);
  }
}

std::array<int, ElementSlots::kSlots> ElementSlots::files() {
  absl::MutexLock lock(&mutex_);
  std::array<int, kSlots> files;
  std::transform(slots_.begin(), slots_.end(), files.begin(),
                 [](const Slot& slot) { return slot.file.get(); });
  return files;
}

absl::StatusOr<std::vector<tensorflow::Tensor>> ElementSlots::TakeElement(int64_t slot,
                                                                          int64_t size) {
  TF_ASSIGN_OR_RETURN(const std::shared_ptr<Use> use, Take(slot, size));
  TF_ASSIGN_OR_RETURN(const std::vector<LaidOutTensor> found, FindTensors(use->memory));
  std::vector<tensorflow::Tensor> tensors;
  tensors.reserve(found.size());
  for (const LaidOutTensor& tensor : found) {
    if (tensor.CanBeReferredTo() && tensor.bytes.size() >= kLeastKeptBytes && use->Keep()) {
      tensors.emplace_back(
          tensor.dtype, tensor.shape,
          tensorflow::core::RefCountPtr<tensorflow::TensorBuffer>(new Buffer(use, tensor.bytes)));
    } else {
      TF_ASSIGN_OR_RETURN(tensorflow::Tensor copy, CopyTensor(tensor));
      tensors.push_back(std::move(copy));
    }
  }
  return tensors;
}

absl::StatusOr<std::string> ElementSlots::TakeText(int64_t slot, int64_t size) {
  TF_ASSIGN_OR_RETURN(const std::shared_ptr<Use> use, Take(slot, size));
  return std::string(use->memory);
}

absl::StatusOr<std::shared_ptr<ElementSlots::Use>> ElementSlots::Take(int64_t slot, int64_t size) {
  absl::MutexLock lock(&mutex_);
  if (slot < 0 || slot >= kSlots || size < 0 || slots_[slot].in_use) {
    return absl::InternalError(absl::StrCat("The process of a pipeline has written ", size,
                                            " bytes into slot ", slot, ", expected one of ", kSlots,
                                            " that is free. Report this."));
  }
  Slot& taken = slots_[slot];
  TF_RETURN_IF_ERROR(Map(size, &taken));
  taken.in_use = true;
  return std::make_shared<Use>(shared_from_this(), static_cast<int>(slot),
                               absl::string_view(taken.memory, size));
}

absl::Status ElementSlots::Map(size_t size, Slot* slot) {
  if (size <= slot->mapped) return absl::OkStatus();
  struct stat status;
  if (fstat(slot->file.get(), &status) != 0) return absl::ErrnoToStatus(errno, "fstat failed");
  const auto available = static_cast<size_t>(status.st_size);
  if (size > available) {
    return absl::InternalError(absl::StrCat("The process of a pipeline has written ", available,
                                            " bytes, expected ", size, ". Report this."));
  }
  void* memory = mmap(nullptr, available, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      slot->file.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("An element of ", size, " bytes of a pipeline can't be mapped"));
  }
  if (slot->memory != nullptr) munmap(slot->memory, slot->mapped);
  slot->memory = static_cast<char*>(memory);
  slot->mapped = available;
  return absl::OkStatus();
}

bool ElementSlots::Keep(int slot) {
  absl::MutexLock lock(&mutex_);
  const auto kept =
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& each) { return each.kept; });
  if (!slots_[slot].kept && kept >= kMostKept) return false;
  slots_[slot].kept = true;
  return true;
}

void ElementSlots::GiveBack(int slot) {
  if (!IsOwner()) return;
  {
    absl::MutexLock lock(&mutex_);
    slots_[slot].in_use = slots_[slot].kept = false;
  }
  const int64_t number = slot;
  // The other end may be gone, which is noticed where elements are read.
  (void)send(socket_.get(), &number, sizeof(number), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace tf_tpu_ext
