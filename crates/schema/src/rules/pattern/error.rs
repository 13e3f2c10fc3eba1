//! The errors of regular expressions. Source: `Error` and `ErrorCode` of Go's `regexp/syntax`.

use super::BYTES_MAX;

/// The reason why a text is no regular expression, in Go's words where Go refuses it, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It breaks a rule of the syntax, in the part that is told.
    #[error("error parsing regexp: {0}: `{1}`")]
    Syntax(Rule, String),
    /// It takes more memory than any expression may.
    #[error("error parsing regexp: expression takes more than {BYTES_MAX} bytes of memory")]
    TooLarge,
}

/// The rule of the syntax that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// A range of characters that does not rise, or a class that there is not.
    #[error("invalid character class range")]
    CharacterRange,
    /// A backslash before what it does not go with.
    #[error("invalid escape sequence")]
    Escape,
    /// A group's name that is none.
    #[error("invalid named capture")]
    NamedCapture,
    /// A group's name that another one has.
    #[error("duplicate capture group name")]
    DuplicateName,
    /// Flags, or something of Perl that Go has not.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition of a repetition.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// A repetition of nothing.
    #[error("missing argument to repetition operator")]
    RepetitionArgument,
    /// A repetition too often, or at least more often than at most.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A class that does not end.
    #[error("missing closing ]")]
    Bracket,
    /// A group that does not end.
    #[error("missing closing )")]
    Parenthesis,
    /// The end of a group that has not begun.
    #[error("unexpected )")]
    UnexpectedParenthesis,
    /// A backslash before nothing.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// Something that only the engine refuses.
    #[error("invalid expression")]
    Engine,
}

impl Rule {
    /// That this part of an expression breaks the rule.
    pub(super) fn broken(self, part: impl Into<String>) -> PatternError {
        PatternError::Syntax(self, part.into())
    }
}
