//! The kinds of routes: a read, a sensitive read, an administrator's act, a tool call.
//!
//! Role, query and body are checked here, alike for every route; the handlers only do the work.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::routing::{MethodFilter, MethodRouter, on};

use super::error::RestError;
use super::exchange::Exchange;
use super::params::{NONE, ParamNames, Params};
use super::record;
use super::show::RestAnswer;
use crate::domain::activity::RecordKind;
use crate::domain::tenant::Action;
use crate::faces::Faces;
use crate::gateway::{Acting, GatewayError};

/// Memory taken for the answer of a read before it is made, in bytes. Most answers are smaller; routes with
/// larger ones take more.
const ANSWER_BYTES: usize = 256 * 1024;

/// Memory taken for the answer of a change before it is made, in bytes. It suffices for the largest answer: a
/// change that was made is not refused afterwards. A change that lists a server holds this memory meanwhile,
/// and the listing needs memory of the same shares.
const ACT_ANSWER_BYTES: usize = 512 * 1024;

/// Keys that may use a route. The gateway's use cases check roles once more.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    /// Any key.
    Anyone,
    /// Keys whose role may do this.
    May(Action),
}

/// Creates a route from the function that answers its exchange.
fn route<W, F>(method: MethodFilter, answer: W) -> MethodRouter<Arc<Faces>>
where
    W: FnOnce(Arc<Exchange>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    on(method, async move |State(faces): State<Arc<Faces>>, request: Request| {
        let exchange = match Exchange::open(faces, request).await {
            Ok(exchange) => exchange,
            Err(response) => return response,
        };
        let answer = answer(Arc::clone(&exchange)).await;
        exchange.finish(answer).await
    })
}

/// Creates a route that changes nothing: it takes query parameters, and no body. A read that the role forbids is recorded.
pub(super) fn read<H, F>(
    method: MethodFilter,
    what: &'static str,
    who: Who,
    names: ParamNames,
    handler: H,
) -> MethodRouter<Arc<Faces>>
where
    H: FnOnce(Arc<Exchange>, Params) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    route(method, async move |exchange| {
        let answer = answer_read(who, names, &exchange, handler).await;
        if let Err(error) = &answer {
            record::refused_read(&exchange, what, error.cause());
        }
        answer
    })
}

/// Creates a route that changes nothing and takes a body. A question that the role forbids is recorded, as a read is.
pub(super) fn question<H, F>(
    method: MethodFilter,
    what: &'static str,
    who: Who,
    handler: H,
) -> MethodRouter<Arc<Faces>>
where
    H: FnOnce(Arc<Exchange>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    route(method, async move |exchange| {
        let answer = match admit(&exchange, who, NONE) {
            Ok(_) => match exchange.expect_answer(ANSWER_BYTES).await {
                Ok(()) => handler(Arc::clone(&exchange)).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = &answer {
            record::refused_read(&exchange, what, error.cause());
        }
        answer
    })
}

/// Creates a route of a read that is recorded however it ends: of data that only few may see, or of much at once.
///
/// The read outlives its connection, so that it has an end to record.
pub(super) fn sensitive<H, F>(
    method: MethodFilter,
    what: &'static str,
    who: Who,
    names: ParamNames,
    handler: H,
) -> MethodRouter<Arc<Faces>>
where
    H: FnOnce(Arc<Exchange>, Params) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    route(method, async move |exchange| {
        let gateway = Arc::clone(exchange.gateway());
        let work = async move {
            let reading = record::begin_read(&exchange, what).await?;
            let answer = answer_read(who, names, &exchange, handler).await;
            let outcome = answer.as_ref().map(|_| ()).map_err(RestError::cause);
            exchange.gateway().log.end_read(&exchange.attempt, reading, outcome);
            answer
        };
        gateway.log.outlive(work).await
    })
}

/// Answers a read after checking its role, query and body.
async fn answer_read<H, F>(who: Who, names: ParamNames, exchange: &Arc<Exchange>, handler: H) -> RestAnswer
where
    H: FnOnce(Arc<Exchange>, Params) -> F,
    F: Future<Output = RestAnswer>,
{
    let params = admit(exchange, who, names)?;
    exchange.no_body().await?;
    exchange.expect_answer(ANSWER_BYTES).await?;
    handler(Arc::clone(exchange), params).await
}

/// Creates a route that changes something: it takes a body and no query parameters. The act is recorded as `what`, however
/// it ends.
///
/// The act outlives its connection: a client that goes away must not leave a change half done or unrecorded.
pub(super) fn act<H, F>(
    method: MethodFilter,
    what: &'static str,
    who: Who,
    handler: H,
) -> MethodRouter<Arc<Faces>>
where
    H: FnOnce(Arc<Exchange>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    route(method, async move |exchange| {
        let gateway = Arc::clone(exchange.gateway());
        gateway.log.outlive(perform(what, who, exchange, handler)).await
    })
}

/// Runs an act and records it as `what`. An act that the caller's role does not allow is refused before anything is
/// committed.
pub(super) async fn perform<H, F>(
    what: &'static str,
    who: Who,
    exchange: Arc<Exchange>,
    handler: H,
) -> RestAnswer
where
    H: FnOnce(Arc<Exchange>) -> F,
    F: Future<Output = RestAnswer>,
{
    if let Err(error) = authorise(&exchange, who)
        && !exchange.is_over_mcp()
    {
        record::refused_act(&exchange, what, &error).await?;
        return Err(error.into());
    }
    let acting = record::begin(&exchange, what).await?;
    let ready = match admit(&exchange, who, NONE) {
        Ok(_) => exchange.expect_answer(ACT_ANSWER_BYTES).await,
        Err(error) => Err(error),
    };
    let answer = match ready {
        Ok(()) => handler(Arc::clone(&exchange)).await,
        Err(error) => Err(error),
    };
    end(&exchange, acting, &answer);
    answer
}

/// Runs a read for a management tool. It is an attempt like any other call of a tool, and recorded.
pub(super) async fn look<H, F>(
    what: &'static str,
    who: Who,
    names: ParamNames,
    exchange: Arc<Exchange>,
    handler: H,
) -> RestAnswer
where
    H: FnOnce(Arc<Exchange>, Params) -> F,
    F: Future<Output = RestAnswer>,
{
    let acting = record::begin(&exchange, what).await?;
    let answer = answer_read(who, names, &exchange, handler).await;
    end(&exchange, acting, &answer);
    answer
}

fn end(exchange: &Exchange, mut acting: Acting, answer: &RestAnswer) {
    acting.note_failure(exchange.take_failure());
    let outcome = answer.as_ref().map(|_| ()).map_err(RestError::cause);
    exchange.gateway().log.end_act(&exchange.attempt, acting, outcome);
}

/// Creates a route of a call or a search. The use case records what it takes in. A refusal before that is an attempt all the
/// same, and recorded here.
pub(super) fn attempt<H, F>(
    method: MethodFilter,
    kind: RecordKind,
    who: Who,
    names: ParamNames,
    handler: H,
) -> MethodRouter<Arc<Faces>>
where
    H: FnOnce(Arc<Exchange>, Params) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = RestAnswer> + Send + 'static,
{
    route(method, async move |exchange| {
        let answer = match admit(&exchange, who, names) {
            Ok(params) => handler(Arc::clone(&exchange), params).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &answer {
            record::refused(&exchange, kind, error.cause());
        }
        answer
    })
}

/// Checks the role, then the query: a caller without the role learns nothing about valid queries.
fn admit(exchange: &Exchange, who: Who, names: ParamNames) -> Result<Params, RestError> {
    authorise(exchange, who)?;
    Ok(exchange.params(names)?)
}

fn authorise(exchange: &Exchange, who: Who) -> Result<(), GatewayError> {
    match who {
        Who::May(action) => exchange.caller().authorise(action),
        Who::Anyone => Ok(()),
    }
}
