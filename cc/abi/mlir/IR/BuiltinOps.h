// Stand-ins for the MLIR types that appear in signatures of the TensorFlow wheel, which ships no
// usable MLIR headers. ModuleOp is a pointer passed by value, and MLIRContext a pointer that owns
// what it points to; the others are only named. The layouts hold from 2.16 to 2.21; MLIRContext is
// exported from 2.19 on.
#ifndef TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINOPS_H_
#define TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINOPS_H_

#include <memory>

#include "llvm/ADT/StringRef.h"

namespace mlir {

class DialectRegistry;
class Pass;

namespace func {
class FuncOp;
}  // namespace func

class Operation {
 public:
  void erase();
};

class ModuleOp {
 public:
  ModuleOp() = default;
  explicit operator bool() const { return operation_ != nullptr; }
  Operation* getOperation() const { return operation_; }

 private:
  Operation* operation_ = nullptr;
};

class MLIRContext {
 public:
  enum class Threading { DISABLED, ENABLED };
  explicit MLIRContext(Threading threading);
  ~MLIRContext();
  MLIRContext(const MLIRContext&) = delete;
  MLIRContext& operator=(const MLIRContext&) = delete;

 private:
  void* implementation_;
};

// Owns `op` and erases it, as the original does.
template <class Op>
class OwningOpRef {
 public:
  OwningOpRef() = default;
  OwningOpRef(const OwningOpRef&) = delete;
  OwningOpRef& operator=(const OwningOpRef&) = delete;
  ~OwningOpRef() {
    if (op_) op_.getOperation()->erase();
  }
  Op get() const { return op_; }

 private:
  Op op_;
};

}  // namespace mlir

#endif  // TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINOPS_H_
