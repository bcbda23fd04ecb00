//! Direct mode: a count of the fleet as counts of its members.
