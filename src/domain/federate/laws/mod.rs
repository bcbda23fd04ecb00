//! The laws of a fleet, over members alone and over a model of the whole loop.
//!
//! Every test draws its fleets from a seeded generator; a failure names the seed. The fleets of `alone` report anything at
//! all, the model of `whole` has autoscalers, nodes, start-up times and an hour of trouble, then an hour of constant input;
//! in `reporter` one of its members then says anything at all. What was drawn later than the seeds (demand weights, Duplicated,
//! clusters with pods that take no part, scale-down behavior, pods that turn not ready) is a variant of a seed, not a draw:
//! every seed is still the fleet that it was.
//!
//! | law | says | tested |
//! |---|---|---|
//! | P1 | `1 <= min <= max <= hi` for every member with a budget | alone, whole |
//! | P2 | maxima and what is unassigned sum to `max(MAX, sum lo)`; beside lost ones to what those leave | alone, whole |
//! | P3 | minima sum to MIN, as far as maxima allow; of a lost member its minimum counts | alone, whole |
//! | P4 | and to no more than `max(MIN, sum lo)` and one for each that was lifted | alone, whole |
//! | P6, P7, P8, P11 to P14 | of one division | beside the divisions |
//! | P5 | the order of members does not matter | alone |
//! | P9 | only R3 and R9 take a maximum below what is placed | alone |
//! | P10 | R5 to R10 keep the sum of maxima and what is unassigned, and that of minima but for who sleeps | alone, whole |
//! | P15 | a member that is not seen is not written to | alone, whole |
//! | P16 | the decision on its own result moves and writes nothing, unless that result is news | alone, whole |
//! | X1 | under constant input nothing moves in the end | whole |
//! | X2 | no floor beyond a known capacity | whole |
//! | X3 | demand is served where capacity and MAX allow | whole |
//! | X4 | the floor is met where capacity allows | whole |
//! | X5 | no member starves at its maximum while others have slack | whole |
//! | X6 | a maximum is never below the threshold | alone, whole |
//! | X7 | no ready pod that demand, MIN or the floor needs is ended before others serve, but under Duplicated | whole |
//! | X8 | a fleet that needs less shrinks from its lowest priority | examples, whole |
//! | X9 | whatever write is the last, maxima sum to no more than before or after, but for what is ended last | alone |
//! | X10 | what one member reports takes nothing that another runs, and puts none below its minimum | alone, whole, reporter |
//! | X11 | under constant demand the count never rises above what demand, floor and minimum ask for | participation, whole |
//! | X12 | no ready pod ends sooner than under one autoscaler over the whole with the same `behavior` | `scale_down`, whole |
//! | X10 | R6 and R9 move at most the threshold of one member for it, R7 one unit | alone, whole, reporter |
//!
//! What is tried again on purpose is no move under constant input: a capacity that proved wrong, demand that belongs to a
//! region, and sleep that proved premature, each at times that double.

mod convergence;
mod examples;
mod false_reports;
mod fixtures;
mod moves;
mod participation;
mod reference;
mod reference_limits;
mod rules;
mod scale_down;
mod scenario;
mod simulation;
mod single_decisions;
