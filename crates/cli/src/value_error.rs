//! Values that flags do not take, and arguments of a server that cannot be: `--kubelet-arg NAME=VALUE` and its like.

use std::borrow::Cow;

use crate::duration::GoDurationError;

/// The reason why a flag does not take a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It must be something else.
    #[error("{0:?} must be {1}")]
    Must(String, Cow<'static, str>),
    /// It is no duration.
    #[error(transparent)]
    Duration(#[from] GoDurationError),
    /// It is no number.
    #[error("{0:?} is no whole number")]
    Number(String),
    /// There is nothing.
    #[error("it is empty")]
    Empty,
    /// Part of it has a value alone.
    #[error("{0:?} has no key")]
    NoKey(String),
    /// It is a label that only others may give a Node.
    #[error("a Node may not give itself the label {0}; use `kubectl label nodes`")]
    Label(String),
    /// It is no label, or no taint, and why.
    #[error("{0:?} {1}")]
    Flaw(String, String),
    /// It is no port.
    #[error("must be between 1 and 65535")]
    Port,
    /// It does not name a file where it has to.
    #[error("config names no file")]
    NoFile,
    /// An argument is not made of two parts.
    #[error("must be NAME=VALUE")]
    NoPair,
    /// The scheduler of a server has no such flag.
    #[error("{0:?} is no flag of the scheduler here; there is config=FILE")]
    SchedulerFlag(String),
    /// The kubelet has no such flag.
    #[error("the kubelet has no such flag; `knarr kubelet --help` lists them")]
    KubeletFlag,
    /// The controllers of a server have no such flag: keys, identities and ranges are the server's own to say.
    #[error(
        "the controllers of a server have no such flag; `knarr controller-manager --help` lists all of them"
    )]
    ControllerFlag,
    /// The parser of command lines refuses it.
    #[error("{0}")]
    CommandLine(String),
}

impl ValueError {
    /// What a text must be.
    pub(crate) fn must(text: &str, be: impl Into<Cow<'static, str>>) -> Self {
        Self::Must(text.to_owned(), be.into())
    }
}

/// An argument of a server that cannot be: a flag and its value for a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag} {argument}: {why}")]
pub struct ArgumentError {
    flag: &'static str,
    argument: String,
    why: ValueError,
}

impl ArgumentError {
    /// Why an argument cannot be, which follows such a flag.
    pub(crate) fn of(flag: &'static str, argument: &str) -> impl Fn(ValueError) -> Self {
        move |why| Self { flag, argument: argument.to_owned(), why }
    }
}
