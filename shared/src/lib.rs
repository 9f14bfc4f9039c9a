//! The Tokscope report and everything computed from it. No I/O, no clock.
