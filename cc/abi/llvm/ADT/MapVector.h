// Maps that the wheel's mlir_roundtrip_flags.h names as members of GraphImportConfig. Their layout
// is unknown here, so nothing that holds one can be constructed.
#ifndef TF_TPU_EXT_CC_ABI_LLVM_ADT_MAPVECTOR_H_
#define TF_TPU_EXT_CC_ABI_LLVM_ADT_MAPVECTOR_H_

namespace llvm {

template <class Value>
class StringMap;

template <class Key, class Value, class Map>
class MapVector {
 public:
  MapVector() = delete;
  MapVector(const MapVector&) = delete;
  MapVector& operator=(const MapVector&) = delete;
};

}  // namespace llvm

#endif  // TF_TPU_EXT_CC_ABI_LLVM_ADT_MAPVECTOR_H_
