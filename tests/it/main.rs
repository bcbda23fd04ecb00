//! Integration tests through the public API, in one binary.

#[cfg(test)]
mod alter;
#[cfg(test)]
mod architecture;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod circles;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod english;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod members;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod page;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod pictures;
#[cfg(test)]
mod reliability;
#[cfg(test)]
mod where_to_add;
