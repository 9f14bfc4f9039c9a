//! The subcommands, a file each: options and what is printed, no measuring.

pub mod simulate;
