//! Each rule alone: when it fires, and when not.
