//! An app server as a gateway's sessions see it, with R1, R4, R5 or R6 broken.

use std::sync::Arc;

use bluetick_chat::{
    App, AppResult, ClusterRequest, Debt, DebtsRequest, Plan, PlanRequest, SettleRequest, Settled, Transport,
};
use bluetick_protocol::{ErrorCode, UserId, WireError};
use serde::{Serialize, de::DeserializeOwned};

use super::{Breach, Breaches, sessions::Deferred};

/// Runs requests on the real app server. As a transport, it names only the operations that it breaks.
pub(super) struct BreachingApp {
    pub inner: Arc<dyn App>,
    pub breaches: Breaches,
    pub deferred: Arc<Deferred>,
}

impl BreachingApp {
    /// The pending rows alone, for a device that has a cursor (R6).
    async fn plan_without_cursor(&self, request: PlanRequest) -> AppResult<Plan> {
        let request = match request.cursor {
            Some(_) => PlanRequest { cursor: None, heads: false, ..request },
            None => request,
        };
        let plan = self.inner.plan(request).await?;
        Ok(Plan { heads: Vec::new(), ..plan })
    }

    /// What the session asked for before its plan was made (R1).
    async fn register_now(&self, user: UserId) {
        let ended = self.deferred.register(&user).await;
        if !ended.is_empty() {
            let replaced = WireError::new(ErrorCode::Replaced, "this device connected again");
            self.inner.end_sessions(ended, replaced).await;
        }
    }

    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        let user = request.user.clone();
        let plan = match self.breaches.contains(Breach::R6) {
            true => self.plan_without_cursor(request).await,
            false => self.inner.plan(request).await,
        };
        self.register_now(user).await;
        plan
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        let settled = self.inner.settle(request).await?;
        match self.breaches.contains(Breach::R4) {
            true => Ok(Settled { last_seq: 0, ..settled }),
            false => Ok(settled),
        }
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        match self.breaches.contains(Breach::R5) {
            true => Ok(Vec::new()),
            false => self.inner.pay_debts(request).await,
        }
    }
}

impl Transport for BreachingApp {
    async fn call<T: DeserializeOwned + Send>(
        &self,
        request: ClusterRequest,
        _: fn(&AppResult<T>) -> bool,
    ) -> AppResult<T> {
        let answer = match request {
            ClusterRequest::Plan(request) => to_json(&self.plan(request).await),
            ClusterRequest::Settle(request) => to_json(&self.settle(request).await),
            ClusterRequest::PayDebts(request) => to_json(&self.pay_debts(request).await),
            other => other.run_on(&*self.inner).await.expect("sessions ask app servers only"),
        };
        serde_json::from_slice(&answer).expect("an app server of the same version writes what is asked for")
    }
}

fn to_json<T: Serialize>(answer: &AppResult<T>) -> Vec<u8> {
    serde_json::to_vec(answer).expect("an answer is written as JSON between processes, too")
}
