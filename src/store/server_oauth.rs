//! Logins of the gateway at servers, as the row of a server shows them, and what ends with the place of a server.

use serde::Deserialize;
use uuid::Uuid;

use super::StoreError;
use super::unit::Unit;
use crate::domain::id::{ServerId, TenantId};

/// Login of the gateway at a server as it may be shown, with the state of its token.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerOauth {
    /// Way of logging in, a word of [`LoginKind`](crate::domain::server_login::LoginKind); a newer release may know others.
    pub kind: String,
    /// Issuer of the token endpoint; `None` if only the endpoint is known.
    pub issuer: Option<String>,
    /// URL of the token endpoint.
    pub token_endpoint: String,
    /// Value of `resource` in token requests; `None` if none is sent.
    pub resource: Option<String>,
    /// Value of `audience` in token requests; `None` if none is sent.
    #[serde(default)]
    pub audience: Option<String>,
    /// Request for exchanges, a word of [`ExchangeGrant`](crate::domain::server_login::ExchangeGrant); `None` where nothing is exchanged.
    #[serde(default)]
    pub exchange_grant: Option<String>,
    /// Scopes that are asked for; empty for those of the provider's choice.
    pub scopes: Vec<String>,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication, a word of [`ClientAuthWay`](crate::domain::server_login::ClientAuthWay).
    pub client_auth: String,
    /// Generation of this configuration: each change makes a new one.
    pub client_generation: Uuid,
    /// Way in which the gateway got its client id, a word of [`Registration`](crate::domain::server_login::Registration).
    pub registration: String,
    /// URL that browsers of people are sent to; `None` for the gateway's own login.
    pub authorization_endpoint: Option<String>,
    /// True if the server itself named the issuer when the login was configured.
    pub is_named: bool,
    /// Principal with whose login the server is listed; `None` for nobody's.
    pub listing_principal: Option<Uuid>,
    /// Number of connections that were made or removed so far: with another one, replicas look tokens up anew.
    pub epoch: i64,
    /// State of the login that the server is listed with, a word of [`LoginState`](crate::domain::server_login::LoginState).
    pub state: String,
    /// Failure of the last request to the token endpoint; `None` after a success.
    pub last_error: Option<String>,
}

/// Deletes the login of the gateway at a server, with its tokens.
pub(super) async fn remove(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    for statement in [
        "delete from connect_flows where tenant_id = $1 and server_id = $2",
        "delete from connections where tenant_id = $1 and server_id = $2",
        "delete from server_oauth where tenant_id = $1 and server_id = $2",
    ] {
        sqlx::query(statement).bind(tenant.0).bind(server.0).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Updates the spelling of the URL that a server's login is for, unless it is for another URL.
pub(super) async fn respell(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    place: &str,
) -> Result<(), StoreError> {
    // tokens are sealed for the former spelling, and replicas drop those that they remember with the generation
    let respelled = sqlx::query(
        "update server_oauth set place = $3, client_generation = $4
         where tenant_id = $1 and server_id = $2 and place <> $3 and place = (
             select split_part(s.url, '?', 1) from servers s where s.tenant_id = $1 and s.server_id = $2)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(place)
    .bind(Uuid::now_v7())
    .execute(&mut **tx)
    .await?;
    if respelled.rows_affected() > 0 {
        sqlx::query("delete from connections where tenant_id = $1 and server_id = $2")
            .bind(tenant.0)
            .bind(server.0)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}
