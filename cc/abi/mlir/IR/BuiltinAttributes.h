// The wheel's headers only name this class, see BuiltinOps.h.
#ifndef TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINATTRIBUTES_H_
#define TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINATTRIBUTES_H_

namespace mlir {

class DictionaryAttr;

}  // namespace mlir

#endif  // TF_TPU_EXT_CC_ABI_MLIR_IR_BUILTINATTRIBUTES_H_
