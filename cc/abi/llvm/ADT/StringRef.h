// Stand-ins for the few LLVM value types that appear in signatures of the TensorFlow wheel, which
// ships no LLVM headers. They are passed by value: their layout, a pointer and a length, is the one
// that the wheel was compiled with, the same from 2.16 to 2.21.
#ifndef TF_TPU_EXT_CC_ABI_LLVM_ADT_STRINGREF_H_
#define TF_TPU_EXT_CC_ABI_LLVM_ADT_STRINGREF_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

namespace llvm {

class StringRef {
 public:
  constexpr StringRef() = default;
  constexpr StringRef(const char* data, size_t size) : data_(data), size_(size) {}
  StringRef(const char* data)  // NOLINT(google-explicit-constructor)
      : data_(data), size_(data == nullptr ? 0 : std::strlen(data)) {}
  StringRef(const std::string& text)  // NOLINT(google-explicit-constructor)
      : data_(text.data()), size_(text.size()) {}
  std::string str() const { return std::string(data_, size_); }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

template <class T>
class ArrayRef {
 public:
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <class T>
class MutableArrayRef : public ArrayRef<T> {
 public:
  constexpr MutableArrayRef() = default;
};

}  // namespace llvm

#endif  // TF_TPU_EXT_CC_ABI_LLVM_ADT_STRINGREF_H_
