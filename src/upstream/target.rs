//! Descriptions of an upstream and of a request to it, as the rest of the program gives them.

pub(super) mod command;
mod http;
mod pages;
mod program;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

pub(super) use self::http::USER_AGENT;
pub use self::http::{Credential, HttpServer, LoginHolder, TargetLogin, is_reserved_header};
pub use self::pages::PageServer;
pub use self::program::Program;
use super::admission::breaker::BreakerRules;
use super::protocol::events::ExchangeFor;
use super::protocol::events::{CallerMark, Hears, PageCall};
use super::protocol::jsonrpc::Round;
use super::protocol::sent::Sent;
use crate::domain::era::Era;
use crate::domain::identity::CallerToken;
use crate::domain::relay::Relay;
use crate::domain::span::Span;

/// Limits of one upstream on this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most calls at once. Each needs a connection of its own, so `connections` bounds it too.
    pub concurrency: usize,
    /// Most calls that wait for admission.
    pub queue: usize,
    /// Longest wait for admission.
    pub queue_wait: Duration,
    /// Rules of the circuit breaker.
    pub breaker: BreakerRules,
    /// Most open connections, idle ones included. Of four or more, two are kept free for answers to the
    /// upstream's own requests and for the gateway's own questions; of two or three, one.
    pub connections: usize,
    /// Longest time to open a connection: name look-up, TCP and TLS.
    pub connect_timeout: Duration,
    /// Longest time of a call, its wait for admission included.
    pub call_timeout: Duration,
    /// Longest time of a whole listing, all pages.
    pub listing_timeout: Duration,
    /// Time after which an unused connection is closed.
    pub idle_timeout: Duration,
    /// Largest answer to a call, in bytes.
    pub response_bytes_max: usize,
}

/// Upstream server, as its database row describes it.
#[derive(Clone)]
pub struct Target {
    /// Tenant that owns the server.
    pub tenant: Uuid,
    /// Id of the server.
    pub server: Uuid,
    /// Version of the server's row. Another version means another connection.
    pub version: i64,
    /// Place of the server, and the credential or environment that belongs to it.
    pub upstream: Upstream,
    /// Era that was found last time; `None` if it is unknown.
    pub era: Option<Era>,
    /// Limits of the server.
    pub limits: Limits,
    /// Messages of the server that reach the caller of a request.
    pub relay: Relay,
}

/// Place of an upstream server, by its kind.
#[derive(Clone)]
pub enum Upstream {
    /// A server at a URL.
    Http(HttpServer),
    /// A program that this replica runs.
    Program(Program),
    /// Web pages, whose forms are the tools.
    Pages(PageServer),
    /// A server whose kind or place this release does not know. It is never contacted.
    Unknown,
}

/// Properties of a server that depend on its kind. Code outside `upstream` asks for these, never for the kind.
trait Described {
    /// Returns whether the server runs on this replica, and ends when the server is switched off.
    fn is_run_here(&self) -> bool {
        false
    }

    /// Returns why the server cannot be reached at all, as a sentence for callers; `None` if it may be.
    fn obstacle(&self) -> Option<&'static str> {
        None
    }

    /// Returns the credential that the server is called with.
    fn credential(&self) -> Credential {
        Credential::None
    }

    /// Returns the secrets that the server is called or started with, and may repeat.
    fn secrets(&self) -> Vec<&str>;

    /// Returns the text that states of its rounds are bound to: a state of one server is worthless at another.
    fn binding(&self) -> String;

    /// Writes where requests go into the span of one.
    fn tell(&self, span: &mut Span);

    /// Returns the pages whose authors describe the tools; `None` for a server that people configured as such.
    fn pages(&self) -> Option<&PageServer> {
        None
    }
}

/// Stands for a server of [`Upstream::Unknown`].
struct Nowhere;

impl Described for Nowhere {
    fn secrets(&self) -> Vec<&str> {
        Vec::new()
    }

    fn binding(&self) -> String {
        String::new()
    }

    fn tell(&self, _: &mut Span) {}
}

impl Upstream {
    fn described(&self) -> &dyn Described {
        match self {
            Self::Http(server) => server,
            Self::Program(program) => program,
            Self::Pages(pages) => pages,
            Self::Unknown => &Nowhere,
        }
    }

    /// Returns whether the server runs on this replica, and ends when it is switched off.
    pub fn is_run_here(&self) -> bool {
        self.described().is_run_here()
    }

    /// Returns why the server cannot be reached at all, as a sentence for callers; `None` if it may be.
    pub fn obstacle(&self) -> Option<&'static str> {
        self.described().obstacle()
    }

    /// Returns the credential that the server is called with.
    pub fn credential(&self) -> Credential {
        self.described().credential()
    }

    /// Returns the login at the server; `None` for no login.
    pub fn login(&self) -> Option<TargetLogin> {
        match self {
            Self::Http(server) => server.login,
            Self::Program(_) | Self::Pages(_) | Self::Unknown => None,
        }
    }

    /// Returns the token of the caller that is exchanged for one at the server; `None` without one.
    pub(super) fn caller_token(&self) -> Option<&Arc<CallerToken>> {
        match self {
            Self::Http(server) => server.caller_token.as_ref(),
            Self::Program(_) | Self::Pages(_) | Self::Unknown => None,
        }
    }

    /// Returns a copy without the token of a caller.
    pub(super) fn without_token(&self) -> Upstream {
        let mut own = self.clone();
        if let Self::Http(server) = &mut own {
            server.caller_token = None;
        }
        own
    }

    /// Returns the secrets that the server is called or started with, and may repeat.
    pub fn secrets(&self) -> Vec<&str> {
        self.described().secrets()
    }

    /// Returns the text that states of the server's rounds are bound to.
    pub fn binding(&self) -> String {
        self.described().binding()
    }

    /// Writes where requests to the server go into the span of one.
    pub fn tell(&self, span: &mut Span) {
        self.described().tell(span);
    }

    /// Returns the pages whose authors describe the tools; `None` for a server that people configured as such.
    pub fn pages(&self) -> Option<&PageServer> {
        self.described().pages()
    }

    /// Returns whether both are the same server with the same credential.
    pub(super) fn is_same(&self, other: &Upstream) -> bool {
        match (self, other) {
            (Self::Http(own), Self::Http(other)) => {
                let is_same_login =
                    own.login.map(TargetLogin::identity) == other.login.map(TargetLogin::identity);
                own.url == other.url && own.credential == other.credential && is_same_login
            }
            (Self::Program(own), Self::Program(other)) => own.is_same(other),
            (Self::Pages(own), Self::Pages(other)) => {
                own.settings == other.settings && own.credential == other.credential
            }
            (Self::Unknown, Self::Unknown) => true,
            (Self::Http(_) | Self::Program(_) | Self::Pages(_) | Self::Unknown, _) => false,
        }
    }

    /// Returns whether a server that runs here goes on when it is described like this: it has the same program, or none
    /// as before.
    pub fn runs_on_as(&self, new: &Upstream) -> bool {
        !self.is_run_here() || self.is_same(new)
    }

    /// Returns the number of times that the deployment's programs had been replaced when this was made; 0 for servers
    /// of other kinds.
    pub(super) fn generation(&self) -> u64 {
        match self {
            Self::Program(program) => program.generation,
            Self::Http(_) | Self::Pages(_) | Self::Unknown => 0,
        }
    }

    /// Returns whether both lead to the same program, or to the same origin and path.
    pub(super) fn has_place_of(&self, other: &Upstream) -> bool {
        match (self, other) {
            (Self::Http(own), Self::Http(other)) => own.has_place_of(other),
            (Self::Pages(own), Self::Pages(other)) => own.settings.pages == other.settings.pages,
            _ => self.is_same(other),
        }
    }
}

impl Target {
    /// Returns the server as this principal reaches it: a copy with its own login where each caller has one, and with the token that
    /// it came with where the login is given in exchange for that.
    pub fn for_principal(
        &self,
        principal: Option<Uuid>,
        token: Option<&Arc<CallerToken>>,
    ) -> Cow<'_, Target> {
        let Upstream::Http(HttpServer { login: Some(login), .. }) = &self.upstream else {
            return Cow::Borrowed(self);
        };
        // also where the gateway lists the server with somebody's login
        if login.is_common() {
            return Cow::Borrowed(self);
        }
        let holder = principal.map_or(LoginHolder::Caller, LoginHolder::Principal);
        let mut own = self.clone();
        if let Upstream::Http(server) = &mut own.upstream {
            server.login = Some(TargetLogin { holder, ..*login });
            server.caller_token = token.filter(|_| login.exchanges).map(Arc::clone);
        }
        Cow::Owned(own)
    }

    /// Returns the principal whose login the server is reached with; `None` for the tenant's or none.
    pub(super) fn principal(&self) -> Option<Uuid> {
        match self.upstream.login()?.holder {
            LoginHolder::Principal(principal) => Some(principal),
            LoginHolder::Tenant | LoginHolder::Caller => None,
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither headers nor the URL, whose query may hold a key.
        f.debug_struct("Target")
            .field("tenant", &self.tenant)
            .field("server", &self.server)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Method of a caller's request, and the thing that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `tools/call` of the tool of this name.
    Tool(String),
    /// `prompts/get` of the prompt of this name.
    Prompt(String),
    /// `resources/read` of this URI.
    Resource(String),
    /// `completion/complete`.
    Completion,
}

impl Subject {
    /// Returns the method, and the member of `params` that names the subject, whose value `Mcp-Name` mirrors.
    pub(super) fn wire(&self) -> (&'static str, Option<(&'static str, &str)>) {
        match self {
            Self::Tool(name) => ("tools/call", Some(("name", name))),
            Self::Prompt(name) => ("prompts/get", Some(("name", name))),
            Self::Resource(uri) => ("resources/read", Some(("uri", uri))),
            Self::Completion => ("completion/complete", None),
        }
    }
}

/// Request of a caller to an upstream.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method of the request, and the thing that it is about.
    pub subject: Subject,
    /// Members of `params` besides the subject and `_meta`, as `(name, raw JSON)`, sent byte for byte.
    pub members: Vec<(&'static str, Bytes)>,
    /// Members of `_meta` as `(name, raw JSON)`; those that belong to this hop are left out.
    pub meta: Vec<(String, Bytes)>,
    /// `Mcp-Param-*` headers, from [`super::param_headers()`]; sent in the modern era only.
    pub param_headers: Vec<(String, String)>,
    /// Queue of the caller for what comes before the answer; `None` if nobody listens.
    pub hears: Option<Hears>,
    /// Form that the request fills in; `None` for any tool but a page's.
    pub page: Option<PageCall>,
    /// Multi-round-trip part of the request.
    pub round: Round,
    /// Caller of the request, whose share of memory the answer takes.
    pub caller: CallerMark,
    /// Token of the caller that is exchanged for one at the server.
    pub exchange_for: ExchangeFor,
    /// Longest time for this request; the upstream's own limit holds too.
    pub timeout: Duration,
    /// Progress of the request, filled in on the way.
    pub sent: Arc<Sent>,
}
