//! The command as its users see it: statuses, messages, precedence, and what a program finds that it has become.

mod becomes;
mod common;
mod compare;
mod doctor;
mod precedence;
mod setup;
mod statuses;
mod texts;
