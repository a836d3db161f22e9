//! Attachments: who may announce, refer to and read what, and what becomes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    Admin, AttachmentApi, BegunUpload, ChatConfig, ChatService, Collector, DownloadLink, Gateway, SendApi,
    SendRequest, Unlimited, UploadLimits, Uploads,
};
use bluetick_protocol::{
    ErrorCode, Json, S3Ref, SignedRequest, UploadParts, UploadRequest, UploadedParts, WireError,
};
use bluetick_store::{Announced, AttachmentRow, Clock as _, Result, StoreError, UploadQuota, UploadState};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{World, conversation, message, user};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Keeps how long what it was given is, and nothing else of it.
struct Shelf {
    limits: UploadLimits,
    drawn: AtomicU8,
    there: Mutex<BTreeMap<S3Ref, u64>>,
    begun: Mutex<Vec<S3Ref>>,
    /// What it cannot let go of.
    stuck: Mutex<BTreeSet<S3Ref>>,
    /// It does not answer.
    hangs: AtomicBool,
}

#[async_trait]
impl Uploads for Shelf {
    fn limits(&self) -> &UploadLimits {
        &self.limits
    }

    fn chance(&self) -> [u8; 10] {
        [self.drawn.fetch_add(1, Ordering::Relaxed); 10]
    }

    fn takes_parts(&self) -> bool {
        true
    }

    async fn begin(&self, row: &AttachmentRow, parts: Option<&UploadParts>) -> Result<BegunUpload> {
        self.begun.lock().push(row.s3_ref.clone());
        let url = format!("put:{}", row.s3_ref);
        let request = SignedRequest { method: "PUT".into(), url, headers: BTreeMap::new() };
        Ok(match parts {
            Some(parts) => BegunUpload {
                upload_id: Some("many".into()),
                upload: None,
                parts: vec![request; parts.sha256.len()],
                expires_at: 1,
            },
            None => BegunUpload { upload_id: None, upload: Some(request), parts: vec![], expires_at: 1 },
        })
    }

    async fn complete(&self, row: &AttachmentRow, parts: &UploadedParts) -> Result<bool> {
        if parts.etags.iter().any(|etag| etag == "early") {
            return Err(StoreError::unavailable("an upload that nobody knows"));
        }
        let good = parts.etags.iter().all(|etag| etag == "good");
        if good {
            self.there.lock().insert(row.s3_ref.clone(), row.bytes);
        }
        Ok(good)
    }

    async fn is_there(&self, row: &AttachmentRow) -> Result<bool> {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(self.there.lock().get(&row.s3_ref) == Some(&row.bytes))
    }

    async fn link(&self, row: &AttachmentRow, _lasts: Option<Duration>) -> Result<DownloadLink> {
        Ok(DownloadLink { url: format!("get:{}", row.s3_ref), expires_at: 1 })
    }

    fn may_still_come(&self, row: &AttachmentRow) -> bool {
        row.name == "late.png"
    }

    async fn remove(&self, row: &AttachmentRow) -> Result<()> {
        if self.stuck.lock().contains(&row.s3_ref) {
            return Err(StoreError::unavailable("the shelf"));
        }
        self.there.lock().remove(&row.s3_ref);
        Ok(())
    }

    async fn sweep(&self) -> Result<()> {
        Err(StoreError::unavailable("the floor under the shelf"))
    }
}

struct Scene {
    world: World,
    shelf: Arc<Shelf>,
    node: Arc<ChatService>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with_quota(UploadQuota::default())
    }

    fn with_quota(quota: UploadQuota) -> Scene {
        let world = World::new();
        let shelf = Arc::new(Shelf {
            limits: UploadLimits {
                max_bytes: 100 << 20,
                types: ["image/*", "audio/*", "application/pdf"].map(str::to_owned).to_vec(),
                quota,
            },
            drawn: AtomicU8::new(0),
            there: Mutex::default(),
            begun: Mutex::default(),
            stuck: Mutex::default(),
            hangs: AtomicBool::default(),
        });
        let node = ChatService::new(
            world.store.clone(),
            nobody(),
            world.clock.clone(),
            ChatConfig::default(),
            Arc::new(Unlimited),
        );
        let node = Arc::new(node.with_uploads(shelf.clone()));
        Scene { world, shelf, node }
    }

    fn admin(&self) -> Admin {
        Admin::new(self.world.store.clone(), nobody(), self.node.observer(), self.world.clock.clone())
            .with_uploads(Some(self.shelf.clone()))
    }

    fn collector(&self) -> Collector {
        Collector::new(self.world.store.clone(), self.shelf.clone(), self.world.clock.clone())
    }

    /// Announces it, and puts it there.
    async fn upload(&self, who: &str, name: &str, mime: &str) -> S3Ref {
        let upload = self.node.begin_upload(user(who), request(name, mime, 10)).await.unwrap();
        self.shelf.there.lock().insert(upload.s3_ref.clone(), 10);
        upload.s3_ref
    }

    async fn send(
        &self,
        from: &str,
        to: &str,
        id: &str,
        attachment: Value,
    ) -> std::result::Result<u64, ErrorCode> {
        let mut send = message(to, id);
        send.body = String::new();
        send.attachment = Json::from_text(&attachment.to_string()).ok();
        let request = SendRequest { user: user(from), session: None, sends: vec![send] };
        self.node.send(request).await.remove(0).map(|sent| sent.seq).map_err(|e| e.code)
    }

    async fn stored(&self, seq: u64) -> Value {
        let limit = bluetick_store::PageLimit::messages(1);
        let page = self.world.store.messages.read_from(&conversation("alice~bob"), seq, limit).await.unwrap();
        page[0].attachment.as_ref().map_or(Value::Null, |json| serde_json::from_str(json.as_str()).unwrap())
    }

    async fn download(
        &self,
        who: &str,
        conv: &str,
        s3_ref: &S3Ref,
    ) -> std::result::Result<String, WireError> {
        let download = self.node.download(user(who), conversation(conv), s3_ref.clone()).await?;
        Ok(download.url)
    }
}

/// No session is open here.
fn nobody() -> Arc<Gateway> {
    Arc::new(Gateway::new("nobody"))
}

fn request(name: &str, mime: &str, bytes: u64) -> UploadRequest {
    UploadRequest { name: name.into(), mime: mime.into(), bytes, sha256: "AB".repeat(32), parts: None }
}

#[tokio::test(start_paused = true)]
async fn a_message_says_what_was_announced_and_the_members_read_it() {
    let scene = Scene::new();
    let photo = scene.upload("alice", "me.jpg", "image/jpeg").await;
    let small = scene.upload("alice", "small.png", "image/png").await;
    let said = json!({"s3_ref": photo, "name": "lies.exe", "mime": "text/html", "bytes": 1, "sha256": "x",
        "blurhash": "LEHV6nWB2yk8", "thumbnail": small});
    assert_eq!(scene.send("alice", "bob", "m1", said.clone()).await, Ok(1));
    let stored = scene.stored(1).await;
    let expected = json!({"s3_ref": photo, "name": "me.jpg", "mime": "image/jpeg", "bytes": 10,
        "sha256": "ab".repeat(32), "blurhash": "LEHV6nWB2yk8", "thumbnail": small});
    assert_eq!(stored, expected, "what the sender says of it counts for nothing");
    assert_eq!(scene.world.inbox("bob").await[0].last_message_preview, "Photo");

    for who in ["alice", "bob"] {
        assert_eq!(scene.download(who, "alice~bob", &photo).await.unwrap(), format!("get:{photo}"));
        assert_eq!(scene.download(who, "alice~bob", &small).await.unwrap(), format!("get:{small}"));
    }
    let unknown = S3Ref::mint(5, [9; 10]);
    let other = scene.upload("alice", "other.jpg", "image/jpeg").await;
    let mut refusals = Vec::new();
    for (who, conv, s3_ref) in [
        ("mallory", "alice~bob", &photo),
        ("mallory", "alice~mallory", &photo),
        ("bob", "alice~bob", &unknown),
        ("bob", "alice~bob", &other),
        ("alice", "alice~carol", &photo),
    ] {
        refusals.push(scene.download(who, conv, s3_ref).await.unwrap_err());
    }
    assert!(refusals.iter().all(|refusal| *refusal == WireError::not_found()), "{refusals:?}");
    assert_eq!(scene.send("alice", "bob", "m1", said).await, Ok(1), "a retry is the same message");
}

#[tokio::test(start_paused = true)]
async fn a_message_refers_only_to_what_its_sender_has_uploaded() {
    let scene = Scene::new();
    let pending = scene.node.begin_upload(user("alice"), request("a.jpg", "image/jpeg", 10)).await.unwrap();
    let said = json!({"s3_ref": pending.s3_ref});
    assert_eq!(scene.send("alice", "bob", "m1", said.clone()).await, Err(ErrorCode::NotUploaded));
    scene.shelf.there.lock().insert(pending.s3_ref.clone(), 9);
    assert_eq!(
        scene.send("alice", "bob", "m1", said.clone()).await,
        Err(ErrorCode::NotUploaded),
        "another length"
    );
    scene.shelf.there.lock().insert(pending.s3_ref.clone(), 10);
    assert_eq!(scene.send("bob", "alice", "m1", said.clone()).await, Err(ErrorCode::NotFound), "another's");
    let pdf = scene.upload("alice", "a.pdf", "application/pdf").await;
    let thumbnail = json!({"s3_ref": pending.s3_ref, "thumbnail": pdf});
    assert_eq!(scene.send("alice", "bob", "m1", thumbnail).await, Err(ErrorCode::BadRequest));
    let unknown = json!({"s3_ref": S3Ref::mint(5, [9; 10])});
    assert_eq!(scene.send("alice", "bob", "m1", unknown).await, Err(ErrorCode::NotFound));
    for bad in [json!({}), json!({"s3_ref": "x"}), json!([1]), json!({"s3_ref": pdf, "blurhash": "\n"})] {
        assert_eq!(scene.send("alice", "bob", "m1", bad.clone()).await, Err(ErrorCode::BadRequest), "{bad}");
    }
    assert_eq!(scene.send("alice", "bob", "m1", said).await, Ok(1));
    assert_eq!(scene.send("alice", "bob", "m2", json!({"s3_ref": pdf})).await, Ok(2));
    assert_eq!(scene.world.inbox("bob").await[0].last_message_preview, "a.pdf");
    let voice = scene.upload("alice", "v.ogg", "audio/ogg").await;
    assert_eq!(scene.send("alice", "bob", "m3", json!({"s3_ref": voice, "voice": true})).await, Ok(3));
    assert_eq!(scene.world.inbox("bob").await[0].last_message_preview, "Voice message");
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_uploaded_is_refused_by_name() {
    let scene = Scene::new();
    for (request, code) in [
        (request("a/b", "image/png", 1), ErrorCode::BadRequest),
        (request("a\nb", "image/png", 1), ErrorCode::BadRequest),
        (request("a", "image", 1), ErrorCode::BadRequest),
        (request("a", "image/png", 0), ErrorCode::BadRequest),
        (UploadRequest { sha256: "0".repeat(63), ..request("a", "image/png", 1) }, ErrorCode::BadRequest),
        (request("a", "image/png", (100 << 20) + 1), ErrorCode::AttachmentTooLarge),
        (request("a", "text/html", 1), ErrorCode::TypeRefused),
    ] {
        let refused = scene.node.begin_upload(user("alice"), request.clone()).await.unwrap_err();
        assert_eq!(refused.code, code, "{request:?}");
    }
    assert!(scene.shelf.begun.lock().is_empty());
    let without = scene.world.node.begin_upload(user("alice"), request("a", "image/png", 1)).await;
    assert_eq!(without.unwrap_err().code, ErrorCode::Unsupported, "a server without a place for them");
}

#[tokio::test(start_paused = true)]
async fn an_upload_in_parts_is_there_when_it_is_completed() {
    let scene = Scene::new();
    let parts = Some(UploadParts { bytes: 5 << 20, sha256: vec!["0".repeat(64); 2] });
    let request = UploadRequest { parts, ..request("v.png", "image/png", 6 << 20) };
    let upload = scene.node.begin_upload(user("alice"), request).await.unwrap();
    assert_eq!((upload.upload, upload.parts.len()), (None, 2));
    let said = json!({"s3_ref": upload.s3_ref});
    assert_eq!(scene.send("alice", "bob", "m1", said.clone()).await, Err(ErrorCode::NotUploaded));
    let complete = async |who: &str, etag: &str| {
        let sha256 = vec!["0".repeat(64); 2];
        let parts = UploadedParts { etags: vec![etag.into(); 2], sha256 };
        let completed = scene.node.complete_upload(user(who), upload.s3_ref.clone(), parts).await;
        completed.map_err(|e| e.code)
    };
    assert_eq!(complete("bob", "good").await, Err(ErrorCode::NotFound));
    assert_eq!(complete("alice", "bad").await, Err(ErrorCode::UploadMismatch));
    assert_eq!(complete("alice", "<x>").await, Err(ErrorCode::BadRequest));
    assert_eq!(complete("alice", "early").await, Err(ErrorCode::Unavailable), "not a last word");
    assert_eq!(complete("alice", "good").await, Ok(()));
    assert_eq!(complete("alice", "good").await, Ok(()), "again");
    assert_eq!(scene.send("alice", "bob", "m1", said).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn what_no_message_refers_to_is_gone_after_a_day() {
    let scene = Scene::new();
    let sent = scene.upload("alice", "a.png", "image/png").await;
    let forgotten = scene.upload("alice", "b.png", "image/png").await;
    assert_eq!(scene.send("alice", "bob", "m1", json!({"s3_ref": sent})).await, Ok(1));
    scene.world.clock.advance(DAY.as_millis() as u64);
    let young = scene.upload("alice", "c.png", "image/png").await;
    assert_eq!(scene.collector().collect().await.unwrap(), 0, "not before the day is over");
    scene.world.clock.advance(1);
    assert_eq!(scene.collector().collect().await.unwrap(), 1);
    assert_eq!(scene.collector().collect().await.unwrap(), 0);
    let there: Vec<S3Ref> = scene.shelf.there.lock().keys().cloned().collect();
    assert_eq!(there, [sent, young], "{}", scene.world.clock.now_ms());
    let late = scene.send("alice", "bob", "m2", json!({"s3_ref": forgotten})).await;
    assert_eq!(late, Err(ErrorCode::NotFound));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_go_does_not_keep_the_rest() {
    let scene = Scene::new();
    let mut all = Vec::new();
    for n in 0..230u32 {
        let row = AttachmentRow {
            s3_ref: S3Ref::mint(u64::from(n), [7; 10]),
            owner: user("alice"),
            name: "a".into(),
            mime: "image/png".into(),
            bytes: 1,
            sha256: String::new(),
            upload_id: None,
            state: UploadState::Expected,
            claimed: false,
        };
        let announced = scene.world.store.attachments.announce(row.clone(), &UploadQuota::default()).await;
        assert_eq!(announced.unwrap(), Announced::Done);
        all.push(row.s3_ref);
    }
    scene.shelf.stuck.lock().extend(all[..120].iter().cloned());
    assert_eq!(scene.collector().collect().await.unwrap(), 110);
    scene.shelf.stuck.lock().clear();
    assert_eq!(scene.collector().collect().await.unwrap(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_does_not_answer_holds_up_no_send_for_long() {
    let scene = Scene::new();
    let photo = scene.upload("alice", "a.png", "image/png").await;
    scene.shelf.hangs.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    let said = json!({"s3_ref": photo});
    assert_eq!(scene.send("alice", "bob", "m1", said.clone()).await, Err(ErrorCode::Unavailable));
    assert!(began.elapsed() < Duration::from_secs(5));
    scene.shelf.hangs.store(false, Ordering::Relaxed);
    assert_eq!(scene.send("alice", "bob", "m1", said).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_erased_user_s_attachments_go_and_the_other_s_stay() {
    let scene = Scene::new();
    let hers = scene.upload("alice", "a.png", "image/png").await;
    let small = scene.upload("alice", "small.png", "image/png").await;
    let his = scene.upload("bob", "b.png", "image/png").await;
    let said = json!({"s3_ref": hers, "thumbnail": small});
    assert_eq!(scene.send("alice", "bob", "m1", said).await, Ok(1));
    assert_eq!(scene.send("bob", "alice", "m2", json!({"s3_ref": his})).await, Ok(2));
    let export = scene.admin().export(&user("alice")).await.unwrap();
    let exported: Vec<_> = export.attachments.iter().map(|a| (a.seq, a.download.url.clone())).collect();
    let get = |s3_ref| format!("get:{s3_ref}");
    assert_eq!(exported, [(1, get(&hers)), (1, get(&small)), (2, get(&his))]);

    // Claimed, but the message was there already, without it; and sent by nobody.
    let doubled = scene.upload("alice", "c.png", "image/png").await;
    let refused = scene.send("alice", "bob", "m1", json!({"s3_ref": doubled})).await;
    assert_eq!(refused, Err(ErrorCode::ClientMsgIdConflict));
    let late = scene.upload("alice", "late.png", "image/png").await;
    let erased = scene.admin().erase(&user("alice")).await.unwrap();
    assert_eq!((erased.attachments, erased.messages), (4, 1));
    assert_eq!(scene.shelf.there.lock().keys().cloned().collect::<Vec<_>>(), std::slice::from_ref(&his));
    assert!(scene.download("bob", "alice~bob", &hers).await.is_err());
    assert!(scene.download("bob", "alice~bob", &his).await.is_ok());

    // An upload that was signed before.
    scene.shelf.there.lock().insert(late, 10);
    assert_eq!(scene.world.store.attachments.owned_by(&user("alice")).await.unwrap(), []);
    scene.world.clock.advance(DAY.as_millis() as u64 + 1);
    assert_eq!(scene.collector().collect().await.unwrap(), 1);
    assert_eq!(scene.shelf.there.lock().keys().cloned().collect::<Vec<_>>(), [his]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_used_up_by_announcements_and_comes_back_with_a_collection_or_an_erasure() {
    const MIB: u64 = 1 << 20;
    let scene = Scene::with_quota(UploadQuota { bytes_per_day: 3 * MIB, bytes_total: 4 * MIB });
    let announce = async |who: &str, bytes: u64| {
        let begun = scene.node.begin_upload(user(who), request("a.png", "image/png", bytes)).await;
        begun.map(|upload| upload.s3_ref)
    };
    for _ in 0..3 {
        announce("alice", MIB).await.unwrap();
    }
    let refused = announce("alice", 1).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::QuotaExceeded);
    let wait = refused.retry_after_ms.unwrap();
    assert!(wait <= DAY.as_millis() as u64, "until the day is over: {wait}");
    assert!(announce("bob", MIB).await.is_ok(), "another's quota is another's");

    scene.world.clock.advance(wait);
    announce("alice", MIB).await.unwrap();
    let refused = announce("alice", 1).await.unwrap_err();
    assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::QuotaExceeded, None));
    assert!(refused.message.contains(&(4 * MIB).to_string()), "{refused}");

    // An upload in parts is refused before the object store hears of it.
    let begun = scene.shelf.begun.lock().len();
    let mut parts = request("a.png", "image/png", 6 * MIB);
    parts.parts = Some(UploadParts { bytes: 5 * MIB, sha256: vec!["0".repeat(64); 2] });
    let refused = scene.node.begin_upload(user("alice"), parts).await.unwrap_err();
    assert_eq!((refused.code, scene.shelf.begun.lock().len()), (ErrorCode::QuotaExceeded, begun));

    scene.world.clock.advance(DAY.as_millis() as u64 + 1);
    assert!(scene.collector().collect().await.unwrap() >= 4);
    announce("alice", 3 * MIB).await.unwrap();
    scene.admin().erase(&user("alice")).await.unwrap();
    assert_eq!(scene.admin().upload_usage(&user("alice")).await.unwrap()[0].usage.total_bytes, 0);
    announce("alice", 3 * MIB).await.unwrap();
}
