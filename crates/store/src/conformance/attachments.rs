//! `attachments`: announced, uploaded once, claimed by conversations, or collected.

use bluetick_protocol::S3Ref;

use super::fixture::{Fixture, START_MS, conversation, user};
use crate::{AttachmentRow, UploadState};

fn row(n: u8, at: u64) -> AttachmentRow {
    AttachmentRow {
        s3_ref: S3Ref::mint(at, [n; 10]),
        owner: user("alice"),
        name: format!("größe {n}.pdf"),
        mime: "application/pdf".into(),
        bytes: 1 << 40,
        sha256: "ab".repeat(32),
        upload_id: (n % 2 == 1).then(|| format!("upload-{n}")),
        state: UploadState::Expected,
        claimed: false,
    }
}

pub async fn an_attachment_is_kept_as_it_was_announced(t: &Fixture) {
    let attachments = &t.store.attachments;
    for n in 0..2 {
        let row = row(n, START_MS);
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), None);
        attachments.announce(row.clone()).await.unwrap();
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), Some(row));
    }
}

pub async fn bytes_arrive_once(t: &Fixture) {
    let (attachments, row) = (&t.store.attachments, row(1, START_MS));
    assert!(!attachments.uploaded(&row.s3_ref).await.unwrap(), "nobody announced it");
    attachments.announce(row.clone()).await.unwrap();
    assert!(!attachments.claim(&row.s3_ref, &conversation("alice~bob")).await.unwrap(), "not there yet");
    let arrivals = (0..4).map(|_| attachments.uploaded(&row.s3_ref));
    let arrived = futures_util::future::join_all(arrivals).await;
    assert_eq!(arrived.into_iter().filter(|arrived| *arrived.as_ref().unwrap()).count(), 1);
    let there = attachments.attachment(&row.s3_ref).await.unwrap().unwrap();
    assert_eq!(there, AttachmentRow { state: UploadState::Uploaded, ..row });
}

pub async fn claims_are_by_conversation(t: &Fixture) {
    let (attachments, row) = (&t.store.attachments, row(1, START_MS));
    let [bobs, carols] = ["alice~bob", "alice~carol"].map(conversation);
    attachments.announce(row.clone()).await.unwrap();
    attachments.uploaded(&row.s3_ref).await.unwrap();
    assert!(!attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
    for _ in 0..2 {
        assert!(attachments.claim(&row.s3_ref, &bobs).await.unwrap());
    }
    assert!(attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
    assert!(!attachments.is_claimed_by(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.claim(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.is_claimed_by(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.attachment(&row.s3_ref).await.unwrap().unwrap().claimed);
}

pub async fn what_a_user_announced_is_found(t: &Fixture) {
    let attachments = &t.store.attachments;
    let [first, second, claimed] = [1, 2, 3].map(|n| row(n, START_MS + u64::from(n)));
    let others = AttachmentRow { owner: user("alice2"), ..row(4, START_MS) };
    assert_eq!(attachments.owned_by(&first.owner).await.unwrap(), []);
    for row in [&first, &second, &claimed, &others] {
        attachments.announce(row.clone()).await.unwrap();
    }
    attachments.uploaded(&claimed.s3_ref).await.unwrap();
    attachments.claim(&claimed.s3_ref, &conversation("alice~bob")).await.unwrap();
    attachments.collect(&second.s3_ref).await.unwrap();
    let [first, second, claimed] = [first, second, claimed].map(|row| row.s3_ref);
    let owned = async || attachments.owned_by(&user("alice")).await.unwrap();
    assert_eq!(owned().await, [first.clone(), second.clone(), claimed.clone()]);
    for s3_ref in [&first, &first, &claimed] {
        attachments.forget(s3_ref).await.unwrap();
    }
    assert_eq!(owned().await, [second]);
    assert_eq!(attachments.owned_by(&others.owner).await.unwrap(), [others.s3_ref]);
}

pub async fn what_nobody_claimed_is_found_by_age(t: &Fixture) {
    let attachments = &t.store.attachments;
    let hour = 3_600_000;
    t.clock.set(START_MS + 40 * hour);
    for n in 0..6 {
        let row = row(n, START_MS + u64::from(n) * 5 * hour);
        attachments.announce(row.clone()).await.unwrap();
        if n != 2 {
            attachments.uploaded(&row.s3_ref).await.unwrap();
        }
        if n == 1 {
            attachments.claim(&row.s3_ref, &conversation("alice~bob")).await.unwrap();
        }
    }
    let names = async |before: u64, limit: usize| -> Vec<String> {
        let found = attachments.unclaimed(before, limit).await.unwrap();
        found.into_iter().map(|row| row.name).collect()
    };
    let named = |ns: &[u8]| -> Vec<String> { ns.iter().map(|&n| row(n, 0).name).collect() };
    assert_eq!(names(START_MS, 10).await, named(&[]));
    assert_eq!(names(START_MS + 16 * hour, 10).await, named(&[0, 2, 3]));
    assert_eq!(names(START_MS + 16 * hour, 2).await, named(&[0, 2]));
    assert_eq!(names(START_MS + 39 * hour, 10).await, named(&[0, 2, 3, 4, 5]));
}

pub async fn what_is_collected_is_not_claimed(t: &Fixture) {
    let (attachments, bobs) = (&t.store.attachments, conversation("alice~bob"));
    let [claimed, loose] = [row(1, START_MS), row(2, START_MS)];
    for row in [&claimed, &loose] {
        attachments.announce(row.clone()).await.unwrap();
        attachments.uploaded(&row.s3_ref).await.unwrap();
    }
    attachments.claim(&claimed.s3_ref, &bobs).await.unwrap();
    assert!(!attachments.collect(&claimed.s3_ref).await.unwrap(), "a message refers to it");
    for _ in 0..2 {
        assert!(attachments.collect(&loose.s3_ref).await.unwrap());
    }
    assert!(!attachments.claim(&loose.s3_ref, &bobs).await.unwrap());
    assert!(!attachments.uploaded(&loose.s3_ref).await.unwrap());
    // A collection that was cut off is found again.
    let found = attachments.unclaimed(START_MS + 1, 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, UploadState::Collecting);
    for row in [&claimed, &loose] {
        attachments.forget(&row.s3_ref).await.unwrap();
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), None);
        assert!(!attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
        assert!(!attachments.collect(&row.s3_ref).await.unwrap());
    }
    assert_eq!(attachments.unclaimed(START_MS + 1, 10).await.unwrap(), []);
}
