//! The laws of a fleet, over members alone and over a model of the whole loop.
//!
//! Every test draws its fleets from a seeded generator; a failure names the seed. The fleets of `alone` report anything at
//! all, the model of `whole` has autoscalers, nodes, start-up times and an hour of trouble, then an hour of constant input.
//!
//! | law | says | tested |
//! |---|---|---|
//! | P1 | `1 <= min <= max <= hi` for every member with a budget | alone, whole |
//! | P2 | maxima and what is unassigned sum to `max(MAX, sum lo)`, where nobody is lost | alone, whole |
//! | P3, P4, P6, P7, P8, P11 to P14 | of one division | beside the divisions |
//! | P5 | the order of members does not matter | alone |
//! | P9, P10 | only R3 and R9 take a maximum below what is placed | alone |
//! | P15 | a member that is not seen is not written to | alone, whole |
//! | P16 | the decision on its own result moves nothing | alone, whole |
//! | X1 | under constant input nothing moves in the end | whole |
//! | X2 | no floor beyond a known capacity | whole |
//! | X3 | demand is served where capacity and MAX allow | whole |
//! | X4 | the floor is met where capacity allows | whole |
//! | X5 | no member starves at its maximum while others have slack | whole |
//! | X6 | a maximum is never below the threshold | alone, whole |
//! | X7 | no ready pod that is needed is ended before others serve | whole |
//! | X8 | a fleet that needs less shrinks from its lowest priority | examples, whole |
//! | X9 | whatever write is the last, maxima sum to no more than before or after, but for what is ended last | alone |
//! | X10 | what one member reports takes nothing that another runs | alone |
//!
//! What is tried again on purpose is no move under constant input: a capacity that proved wrong, demand that belongs to a
//! region, and sleep that proved premature, each at times that double.

mod alone;
mod examples;
mod fleets;
mod rules;
mod whole;
mod world;
