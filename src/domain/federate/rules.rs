//! The rules R0 to R12, in their order.
