//! Compiles the interface of KEDA's external scalers, without `protoc`.

fn main() {}
