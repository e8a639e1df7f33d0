//! Calls of tools, prompts and resources, and the reading of cached results.

mod asking;
mod cancel;
mod cookies;
mod drafts;
mod explain;
mod held;
mod line;
mod own;
mod pipeline;
mod read_cache;
mod refused;
mod replay;
mod response_cache;
mod under_way;

pub use self::cancel::CancelBy;
pub use self::explain::{ExplainRequest, Explained};
pub use self::line::{ClientLine, ClientQuestion, ToClient};
pub use self::pipeline::policy::PolicyVerdict;
pub use self::pipeline::{
    CallOutcome, CallRequest, Callee, Door, OfferRequest, Refused, Rehearsed, Replaced, RoundRequest,
    SubscribeFault, ToolRequest, Unanswered, Wanted,
};
pub use self::read_cache::{ReadRequest, ReadResult, TextPage};
pub use self::replay::{PastOutcome, ReplayReport, ReplayedCalls};

use std::sync::Arc;

use self::cancel::CancelNotices;
use self::response_cache::CacheLane;
use self::under_way::CallsUnderWay;
use super::{Connect, Consent, Ground, Lifecycle, Log, Mailbox, Options, Tenants};
use crate::domain::measure::Series;
use crate::store::Store;
use crate::upstream::Pool;

/// Use cases of calls: tools, prompts, resources, completions and `read_cache`.
pub struct Calls {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    tenants: Arc<Tenants>,
    log: Arc<Log>,
    consent: Arc<Consent>,
    mailbox: Arc<Mailbox>,
    connect: Arc<Connect>,
    under_way: Arc<CallsUnderWay>,
    cancel_notices: CancelNotices,
    cache_lane: CacheLane,
    /// Time that the gateway itself added to calls, by the tier of the tool.
    pub overhead: Series<&'static str>,
}

impl Calls {
    pub(super) fn new(
        ground: &Ground,
        tenants: &Arc<Tenants>,
        log: &Arc<Log>,
        (consent, mailbox, connect): (&Arc<Consent>, &Arc<Mailbox>, &Arc<Connect>),
    ) -> Calls {
        let Ground { store, upstreams, options, life } = ground.clone();
        Calls {
            store,
            upstreams,
            cache_lane: CacheLane::new(options.cache_turns),
            options,
            life,
            tenants: Arc::clone(tenants),
            log: Arc::clone(log),
            consent: Arc::clone(consent),
            mailbox: Arc::clone(mailbox),
            connect: Arc::clone(connect),
            under_way: Arc::default(),
            cancel_notices: CancelNotices::default(),
            overhead: Series::of_own(),
        }
    }
}
