// The vector that a class for GPUs in XLA's tma_metadata.h of 2.19 contains. Its layout is unknown
// here, so nothing that holds one can be constructed.
#ifndef TF_TPU_EXT_CC_ABI_LLVM_ADT_SMALLVECTOR_H_
#define TF_TPU_EXT_CC_ABI_LLVM_ADT_SMALLVECTOR_H_

#include "llvm/ADT/StringRef.h"

namespace llvm {

template <class Value>
class SmallVector {
 public:
  SmallVector() = delete;
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;
  operator ArrayRef<Value>() const;  // NOLINT(google-explicit-constructor)
};

}  // namespace llvm

#endif  // TF_TPU_EXT_CC_ABI_LLVM_ADT_SMALLVECTOR_H_
