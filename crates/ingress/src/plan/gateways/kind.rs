//! The kinds of routes that are served.

/// A kind of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RouteKind {
    Http,
    Grpc,
}

impl RouteKind {
    pub(super) const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Grpc => "GRPCRoute",
        }
    }
}
