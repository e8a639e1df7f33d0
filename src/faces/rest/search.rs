//! `GET /tools?query=`: search among the tools that the key can see.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::exchange::Exchange;
use super::params::{ParamNames, Params};
use super::show::{RestAnswer, RouteAnswer};
use crate::faces::body::hold_answer;
use crate::faces::wire::error::json_response;
use crate::faces::wire::headers::MISSING;
use crate::gateway::{
    Detail, GatewayError, LIMIT_DEFAULT, LIMIT_MAX, MemoryPurpose, SearchRequest, overloaded,
};

/// Parameters of a search.
pub(super) const PARAMS: ParamNames =
    &["detail", "exclude_destructive", "include_site_tools", "limit", "query", "read_only_only", "server"];

pub(super) async fn find(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    exchange.needs_tenant()?;
    exchange.no_body().await?;
    let request = request(&params)?;
    let found = exchange.gateway().search.retrieve_tools(&exchange.attempt, &request).await;
    let mut found = found.map_err(|refusal| GatewayError::Refused(Box::new(refusal)))?;
    let memory = found.memory.take();
    let json = hold_answer(exchange.gateway(), exchange.caller(), memory, found.json.into()).await;
    let json = json.map_err(|_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer))))?;
    let mut response = json_response(StatusCode::OK, json);
    // names of servers are plain ASCII
    if let Some(names) =
        HeaderValue::from_str(&found.missing.join(",")).ok().filter(|names| !names.is_empty())
    {
        response.headers_mut().insert(MISSING, names);
    }
    Ok(RouteAnswer::Ready(response))
}

fn request(params: &Params) -> Result<SearchRequest, GatewayError> {
    let query = params.text("query").ok_or_else(|| GatewayError::invalid("query", "query is needed"))?;
    Ok(SearchRequest {
        query: query.to_owned(),
        limit: params.count("limit", LIMIT_DEFAULT, LIMIT_MAX)?,
        server: params.text("server").map(str::to_owned),
        read_only_only: params.flag("read_only_only")?,
        exclude_destructive: params.flag("exclude_destructive")?,
        include_site_tools: params.flag("include_site_tools")?,
        detail: params.one_of("detail", &Detail::ALL)?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<SearchRequest, GatewayError> {
        request(&Params::parse(Some(query), PARAMS)?)
    }

    #[test]
    fn a_search_is_read_or_named() {
        let all =
            read("query=a+file&limit=100&server=fs&read_only_only=true&exclude_destructive=true").unwrap();
        assert_eq!((all.query.as_str(), all.limit, all.server.as_deref()), ("a file", 100, Some("fs")));
        assert!(all.read_only_only && all.exclude_destructive);
        let least = read("query=x").unwrap();
        assert_eq!((least.limit, least.server, least.read_only_only), (15, None, false));
        assert!(
            !least.include_site_tools && read("query=x&include_site_tools=true").unwrap().include_site_tools
        );
        assert_eq!(least.detail, Detail::Full);
        assert_eq!(read("query=x&detail=compact").unwrap().detail, Detail::Compact);
        for bad in [
            "",
            "query=",
            "query=x&limit=0",
            "query=x&limit=101",
            "query=x&read_only_only=1",
            "query=x&cursor=a",
            "query=x&detail=short",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
