"""Disaster recovery: links between sites, failovers and their accounts of loss, repairs, and
drills.
"""
